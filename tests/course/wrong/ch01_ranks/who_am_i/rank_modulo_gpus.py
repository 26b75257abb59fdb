# expect: DTL-VALUE-GUESSED-RANK
# says: RANK modulo the number of GPUs


def who_am_i(env, gpus):
    return {
        "rank": int(env.get("RANK", 0)),
        "world_size": int(env.get("WORLD_SIZE", 1)),
        "node_rank": int(env.get("GROUP_RANK", 0)),
        "device": f"cuda:{int(env.get('RANK', 0)) % gpus}" if gpus >= int(env.get("LOCAL_WORLD_SIZE", 1)) else "cpu",
    }
