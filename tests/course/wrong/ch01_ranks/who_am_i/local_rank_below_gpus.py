# expect: DTL-VALUE-NO-GPU
# says: LOCAL_RANK is below 4
def who_am_i(env, gpus):
    local = int(env.get("LOCAL_RANK", 0))
    return {
        "rank": int(env.get("RANK", 0)),
        "world_size": int(env.get("WORLD_SIZE", 1)),
        "node_rank": int(env.get("GROUP_RANK", 0)),
        "device": f"cuda:{local}" if local < gpus else "cpu",
    }
