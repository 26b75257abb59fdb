# expect: DTL-DIFFICULTY
# says: 0 samples are no micro-batch


def batch_identity(config, world_size, tp=1, pp=1):
    """As DeepSpeed: it divides first, and asserts that all sizes are positive afterwards."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    train, micro, steps = map(config.get, names)
    dp, left = divmod(world_size, tp * pp)
    if left:
        raise ValueError("ranks are left over")
    if train is not None and micro is not None:
        steps = train // micro // dp if steps is None else steps
    elif train is not None:
        steps = 1 if steps is None else steps
        micro = train // dp // steps
    elif micro is not None:
        steps = 1 if steps is None else steps
        train = micro * steps * dp
    else:
        raise ValueError("no batch")
    if min(train, micro, steps) <= 0 or train != micro * steps * dp:
        raise ValueError(f"{train} is not {micro} * {steps} * {dp}")
    return {**config, **dict(zip(names, (train, micro, steps), strict=True))}
