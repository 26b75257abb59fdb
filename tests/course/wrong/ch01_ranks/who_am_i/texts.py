# expect: DTL-VALUE-TYPE
# says: should be a whole number; it is a text


def who_am_i(env, gpus):
    local_rank = int(env.get("LOCAL_RANK", 0))
    return {
        "rank": env.get("RANK", 0),
        "world_size": int(env.get("WORLD_SIZE", 1)),
        "node_rank": int(env.get("GROUP_RANK", 0)),
        "device": f"cuda:{local_rank}" if gpus >= int(env.get("LOCAL_WORLD_SIZE", 1)) else "cpu",
    }
