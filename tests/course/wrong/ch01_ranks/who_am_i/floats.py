# expect: DTL-VALUE-TYPE
# says: should be a whole number; it is 4.0
def who_am_i(env, gpus):
    local = int(env.get("LOCAL_RANK", 0))
    return {
        "rank": float(env.get("RANK", 0)),
        "world_size": float(env.get("WORLD_SIZE", 1)),
        "node_rank": float(env.get("GROUP_RANK", 0)),
        "device": f"cuda:{local}" if gpus >= int(env.get("LOCAL_WORLD_SIZE", 1)) else "cpu",
    }
