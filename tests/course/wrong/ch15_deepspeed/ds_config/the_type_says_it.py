# expect: DTL-MISTAKE
# says: the type "Adam" alone is AdamW in DeepSpeed


def ds_config(
    *, world_size, pp, micro_batch, global_batch, precision, stage, offload, clipping, rule, lr, weight_decay, device
):
    replicas = world_size // pp
    steps = global_batch // (micro_batch * replicas)
    if (
        steps * micro_batch * replicas != global_batch
        or (precision, device) == ("fp16", "cpu")
        or (pp > 1 and stage > 1)
    ):
        raise ValueError("this cannot be")
    zero = {"stage": stage}
    if offload != "none":
        if stage < (3 if offload == "parameters" else 1):
            raise ValueError("this would be ignored")
        zero["offload_optimizer"] = {"device": "cpu"}
    if offload == "parameters":
        zero["offload_param"] = {"device": "cpu"}
    return {
        "train_batch_size": global_batch,
        "gradient_accumulation_steps": steps,
        "gradient_clipping": float(clipping or 0),
        "bf16": {"enabled": precision == "bf16"},
        "fp16": {"enabled": precision == "fp16"},
        "zero_optimization": zero,
        "optimizer": {
            "type": {"adam": "Adam", "adamw": "AdamW"}[rule],
            "params": {"lr": lr, "weight_decay": weight_decay, "torch_adam": True},
        },
    }
