from itertools import product


def batch_identity(config, world_size, tp=1, pp=1):
    """Searches the sizes that fit, instead of dividing."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    if world_size % (tp * pp):
        raise ValueError("ranks are left over")
    dp = world_size // tp // pp
    known = {name: config[name] for name in names if name in config}
    if not known or list(known) == [names[2]]:
        raise ValueError("the batch is not known")
    if len(known) == 1:
        known[names[2]] = 1
    top = known.get(names[0], 64)
    ranges = [[known[name]] if name in known else range(1, top + 1) for name in names[1:]]
    for micro, steps in product(*ranges):
        train = known.get(names[0], micro * steps * dp)
        if train == micro * steps * dp and min(train, micro, steps) > 0:
            return config | dict(zip(names, (train, micro, steps), strict=True))
    raise ValueError(f"a global batch of {known.get(names[0])} on {dp} replicas")
