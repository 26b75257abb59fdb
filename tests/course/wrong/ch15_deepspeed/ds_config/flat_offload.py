# expect: DTL-DIFFICULTY
# says: offload_optimizer, with the device cpu


def ds_config(*, precision, stage, offload, clipping, rule, lr, weight_decay, **sizes):
    config = {
        "train_micro_batch_size_per_gpu": sizes["micro_batch"],
        "train_batch_size": sizes["global_batch"],
        "gradient_clipping": clipping or 0,
        "zero_optimization": {"stage": stage},
        "optimizer": {
            "type": "AdamW" if rule == "adamw" else "Adam",
            "params": {
                "lr": lr,
                "weight_decay": weight_decay,
                "torch_adam": True,
                "adam_w_mode": rule == "adamw",
            },
        },
    }
    for name in ("bf16", "fp16"):
        config[name] = {"enabled": precision == name}
    if offload != "none":
        config["zero_optimization"]["offload_optimizer"] = "cpu"
        config["zero_optimization"]["offload_param"] = "cpu" if offload == "parameters" else "none"
    return config
