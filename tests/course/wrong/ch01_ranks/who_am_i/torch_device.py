# expect: DTL-RESULT
# says: returned no plain data: who_am_i: the result['device'] is of type device
import torch


def who_am_i(env, gpus):
    local = int(env.get("LOCAL_RANK", 0))
    return {
        "rank": int(env.get("RANK", 0)),
        "world_size": int(env.get("WORLD_SIZE", 1)),
        "node_rank": int(env.get("GROUP_RANK", 0)),
        "device": torch.device(f"cuda:{local}") if gpus >= int(env.get("LOCAL_WORLD_SIZE", 1)) else torch.device("cpu"),
    }
