def ds_config(*, world_size, pp, micro_batch, global_batch, **wish):
    """Gives two of the three sizes, the type "AdamW" for AdamW, and switches what is off to off."""
    if global_batch % micro_batch or global_batch // micro_batch % (world_size // pp):
        raise ValueError("the samples do not divide")
    level = ("none", "optimizer", "parameters").index(wish["offload"])
    if wish["stage"] < (0, 1, 3)[level]:
        raise ValueError("this stage does not offload that")
    if wish["stage"] >= 2 and pp != 1:
        raise ValueError("a pipeline needs whole gradients")
    if wish["precision"] == "fp16" and wish["device"] != "cuda":
        raise ValueError("no fp16 here")
    params = {"lr": wish["lr"], "weight_decay": wish["weight_decay"], "torch_adam": True}
    if wish["rule"] == "adam":
        params["adam_w_mode"] = False
    return {
        "train_batch_size": global_batch,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_clipping": wish["clipping"] or 0,
        "fp16": {"enabled": wish["precision"] == "fp16"},
        "bf16": {"enabled": wish["precision"] == "bf16"},
        "optimizer": {"type": "AdamW" if wish["rule"] == "adamw" else "Adam", "params": params},
        "zero_optimization": {
            "stage": wish["stage"],
            "offload_optimizer": {"device": "cpu" if level > 0 else "none"},
            "offload_param": {"device": "cpu" if level > 1 else "none"},
        },
    }
