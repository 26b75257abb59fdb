# expect: DTL-DIFFICULTY
# says: the ranks of one pipeline are one replica

MODES = {"adam": False, "adamw": True}


def ds_config(
    *, world_size, micro_batch, global_batch, precision, stage, offload, clipping, rule, lr, weight_decay, **more
):
    """Lets DeepSpeed find the global batch, and checks it with all ranks."""
    steps, left = divmod(global_batch, micro_batch * world_size)
    if left or (precision == "fp16" and more["device"] == "cpu"):
        raise ValueError(f"{left} samples are left over, or fp16 is asked of a processor")
    if (more["pp"] > 1 and stage >= 2) or (offload == "parameters" and stage < 3) or (offload != "none" and not stage):
        raise ValueError("this does not go together")
    config = dict(train_micro_batch_size_per_gpu=micro_batch, gradient_accumulation_steps=steps)
    config["gradient_clipping"] = 0.0 if clipping is None else clipping
    config["zero_optimization"] = dict(stage=stage)
    for key in ["offload_optimizer", "offload_param"][: ["none", "optimizer", "parameters"].index(offload)]:
        config["zero_optimization"][key] = dict(device="cpu")
    if precision in ("bf16", "fp16"):
        config[precision] = dict(enabled=True)
    params = dict(lr=lr, weight_decay=weight_decay, torch_adam=True, adam_w_mode=MODES[rule])
    return {**config, "optimizer": dict(type="adam", params=params)}
