def who_am_i(env, gpus):
    if "RANK" not in env:
        return {"device": "cuda:0" if gpus else "cpu", "rank": 0, "world_size": 1, "node_rank": 0}
    out = {k.lower(): int(env[k]) for k in ("RANK", "WORLD_SIZE")}
    out["node_rank"] = int(env["GROUP_RANK"])
    if int(env["LOCAL_WORLD_SIZE"]) <= gpus:
        out["device"] = "cuda:" + env["LOCAL_RANK"]
    else:
        out["device"] = "cpu"
    return out
