# expect: DTL-DIFFICULTY
# says: takes the cpu where there is no GPU
def who_am_i(env, gpus):
    if "RANK" not in env:
        return {"rank": 0, "world_size": 1, "node_rank": 0, "device": "cuda:0"}
    here = int(env["LOCAL_WORLD_SIZE"])
    return {
        "rank": int(env["RANK"]),
        "world_size": int(env["WORLD_SIZE"]),
        "node_rank": int(env["GROUP_RANK"]),
        "device": "cuda:" + env["LOCAL_RANK"] if gpus >= here else "cpu",
    }
