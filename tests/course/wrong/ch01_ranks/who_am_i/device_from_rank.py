# expect: DTL-VALUE-LOCAL-RANK
# says: the device comes from RANK
# says: LOCAL_RANK=


def who_am_i(env, gpus):
    return {
        "rank": int(env.get("RANK", 0)),
        "world_size": int(env.get("WORLD_SIZE", 1)),
        "node_rank": int(env.get("GROUP_RANK", 0)),
        "device": f"cuda:{int(env.get('RANK', 0))}" if gpus >= int(env.get("LOCAL_WORLD_SIZE", 1)) else "cpu",
    }
