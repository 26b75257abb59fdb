# expect: DTL-RAISED
# says: raised KeyError: 'RANK'
# says: without a launcher none of the names is set


def who_am_i(env, gpus):
    local_rank = int(env.get("LOCAL_RANK", 0))
    return {
        "rank": int(env["RANK"]),
        "world_size": int(env.get("WORLD_SIZE", 1)),
        "node_rank": int(env.get("GROUP_RANK", 0)),
        "device": f"cuda:{local_rank}" if gpus >= int(env.get("LOCAL_WORLD_SIZE", 1)) else "cpu",
    }
