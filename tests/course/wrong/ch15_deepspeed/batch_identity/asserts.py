# expect: DTL-DIFFICULTY
# says: break the identity need a ValueError


def batch_identity(config, world_size, tp=1, pp=1):
    train, micro, steps = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
    full = dict(config)
    dp = world_size // (tp * pp)
    if steps not in full:
        full[steps] = full[train] // full[micro] // dp if train in full and micro in full else 1
    if micro not in full:
        full[micro] = full[train] // full[steps] // dp
    full.setdefault(train, full[micro] * full[steps] * dp)
    assert full[train] == full[micro] * full[steps] * dp, "the batch sizes do not fit"
    return full
