# expect: DTL-DIFFICULTY
# says: where only the global batch is given


def batch_identity(config, world_size, tp=1, pp=1):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    train, micro, steps = map(config.get, names)
    if (train, micro, steps).count(None) > 1:
        raise ValueError("give two of the three")
    if world_size % (tp * pp):
        raise ValueError("ranks")
    dp = world_size // (tp * pp)
    train = train or micro * steps * dp
    micro = micro or train // steps // dp
    steps = steps or train // micro // dp
    if train != micro * steps * dp:
        raise ValueError(f"{train} and {dp}")
    return {**config, **dict(zip(names, (train, micro, steps), strict=True))}
