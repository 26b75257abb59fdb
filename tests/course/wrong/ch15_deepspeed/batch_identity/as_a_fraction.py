# expect: DTL-VALUE-TYPE
# says: so divide with //


def batch_identity(config, world_size, tp=1, pp=1):
    train, micro, steps = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
    dp = world_size / tp / pp
    full = dict(config)
    if (train not in full and micro not in full) or dp != int(dp) or any(v <= 0 for v in full.values()):
        raise ValueError("no batch")
    if steps not in full:
        full[steps] = full[train] / full[micro] / dp if train in full and micro in full else 1
    if micro not in full:
        full[micro] = full[train] / full[steps] / dp
    if train not in full:
        full[train] = full[micro] * full[steps] * dp
    if full[train] != full[micro] * full[steps] * dp:
        raise ValueError(f"{full[train]} and {dp:g}")
    return full
