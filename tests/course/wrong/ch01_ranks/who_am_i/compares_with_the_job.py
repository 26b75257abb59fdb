# expect: DTL-VALUE-CPU
# says: 8 GPUs for 2 processes
# says: not the processes of the whole job
def who_am_i(env, gpus):
    world_size = int(env.get("WORLD_SIZE", 1))
    return {
        "rank": int(env.get("RANK", 0)),
        "world_size": world_size,
        "node_rank": int(env.get("GROUP_RANK", 0)),
        "device": f"cuda:{int(env.get('LOCAL_RANK', 0))}" if gpus >= world_size else "cpu",
    }
