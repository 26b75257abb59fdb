# expect: DTL-VALUE-SHARED-GPU
# says: 6 processes share 4 GPUs
def who_am_i(env, gpus):
    local_rank = int(env.get("LOCAL_RANK", 0))
    return {
        "rank": int(env.get("RANK", 0)),
        "world_size": int(env.get("WORLD_SIZE", 1)),
        "node_rank": int(env.get("GROUP_RANK", 0)),
        "device": f"cuda:{local_rank % gpus}" if gpus else "cpu",
    }
