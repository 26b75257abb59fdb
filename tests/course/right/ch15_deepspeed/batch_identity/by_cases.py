TRAIN = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"


def batch_identity(config, world_size, tp=1, pp=1):
    result = dict(config)
    dp, left = divmod(world_size, tp * pp)
    if left:
        raise ValueError(f"{left} ranks are left over")
    match TRAIN in config, MICRO in config, STEPS in config:
        case (False, False, _):
            raise ValueError("no batch size is there")
        case (True, False, False):
            result[STEPS], result[MICRO] = 1, config[TRAIN] // dp
        case (False, True, False):
            result[STEPS], result[TRAIN] = 1, config[MICRO] * dp
        case (True, True, False):
            if config[MICRO] < 1:
                raise ValueError("the micro-batch is empty")
            result[STEPS] = config[TRAIN] // (config[MICRO] * dp)
        case (True, False, True):
            result[MICRO] = config[TRAIN] // (config[STEPS] * dp)
        case (False, True, True):
            result[TRAIN] = config[MICRO] * config[STEPS] * dp
    train, micro, steps = result[TRAIN], result[MICRO], result[STEPS]
    if micro < 1 or steps < 1 or train % micro or train % dp or train // micro // dp != steps or train % (micro * dp):
        raise ValueError(f"{dp} replicas with {steps} times {micro} samples each are not {train}")
    return result
