# expect: DTL-MISTAKE
# says: clipping is not stated where none is wanted


def ds_config(**wish):
    """States only what differs from what the author takes for the defaults."""
    config = {
        "train_micro_batch_size_per_gpu": wish["micro_batch"],
        "train_batch_size": wish["global_batch"],
        "optimizer": {
            "type": "Adam",
            "params": {"lr": wish["lr"], "weight_decay": wish["weight_decay"], "torch_adam": True},
        },
    }
    if wish["rule"] == "adam":
        config["optimizer"]["params"]["adam_w_mode"] = False
    if wish["clipping"]:
        config["gradient_clipping"] = wish["clipping"]
    if wish["precision"] != "fp32":
        config[wish["precision"]] = {"enabled": True}
    zero = {}
    if wish["stage"]:
        zero["stage"] = wish["stage"]
    if wish["offload"] in ("optimizer", "parameters"):
        zero["offload_optimizer"] = {"device": "cpu"}
    if wish["offload"] == "parameters":
        zero["offload_param"] = {"device": "cpu"}
    if zero:
        config["zero_optimization"] = zero
    return config
