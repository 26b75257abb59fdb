# expect: DTL-MISTAKE
# says: rounded away where the accumulation is filled in


def batch_identity(config, world_size, tp=1, pp=1):
    if world_size % (tp * pp):
        raise ValueError("ranks")
    dp = world_size // (tp * pp)
    train = config.get("train_batch_size")
    micro = config.get("train_micro_batch_size_per_gpu")
    steps = config.get("gradient_accumulation_steps")
    if None not in (train, micro, steps):
        if train != micro * steps * dp:
            raise ValueError(f"{train} samples for {dp} replicas")
    elif train is not None and micro is not None:
        steps = max(1, train // micro // dp)
    elif train is not None:
        steps = steps or 1
        micro = max(1, train // steps // dp)
    elif micro is not None:
        steps = steps or 1
        train = micro * steps * dp
    else:
        raise ValueError("nothing is known")
    sizes = {"train_batch_size": train, "train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": steps}
    return {**config, **sizes}
