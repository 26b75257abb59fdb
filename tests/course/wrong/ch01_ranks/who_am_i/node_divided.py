# expect: DTL-VALUE-GUESSED-NODE
# says: GROUP_RANK says it


def who_am_i(env, gpus):
    local_rank = int(env.get("LOCAL_RANK", 0))
    return {
        "rank": int(env.get("RANK", 0)),
        "world_size": int(env.get("WORLD_SIZE", 1)),
        "node_rank": int(env.get("RANK", 0)) // int(env.get("LOCAL_WORLD_SIZE", 1)),
        "device": f"cuda:{local_rank}" if gpus >= int(env.get("LOCAL_WORLD_SIZE", 1)) else "cpu",
    }
