import copy

EMPTY = {"zero_optimization": {}, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}


def ds_config(
    *, world_size, pp, micro_batch, global_batch, precision, stage, offload, clipping, rule, lr, weight_decay, device
):
    """Copies a template, and leaves the global batch to DeepSpeed."""
    config = copy.deepcopy(EMPTY)
    passes, left = divmod(global_batch * pp, micro_batch * world_size)
    problems = [
        (left, "samples are left over"),
        (device == "cpu" and precision == "fp16", "fp16 on a processor"),
        (pp > 1 and stage in (2, 3), "a stage that a pipeline does not take"),
        (offload == "optimizer" and stage not in (1, 2, 3), "offload without ZeRO"),
        (offload == "parameters" and stage != 3, "parameters are whole on every rank"),
    ]
    for is_one, what in problems:
        if is_one:
            raise ValueError(what)
    config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"] = micro_batch, passes
    config["gradient_clipping"] = clipping if clipping is not None else 0
    config["zero_optimization"]["stage"] = stage
    config["zero_optimization"] |= {"offload_optimizer": {"device": "cpu"}} if offload != "none" else {}
    config["zero_optimization"] |= {"offload_param": {"device": "cpu"}} if offload == "parameters" else {}
    config["optimizer"]["params"] |= {"lr": lr, "weight_decay": weight_decay}
    if rule == "adam":
        config["optimizer"]["type"] = "Adam"
        config["optimizer"]["params"]["adam_w_mode"] = False
    return config | ({precision: {"enabled": True}} if precision != "fp32" else {})
