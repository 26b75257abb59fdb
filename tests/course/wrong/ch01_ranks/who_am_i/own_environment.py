# expect: DTL-VALUE-OWN-ENV
# says: it was read from os.environ
# says: the argument `env`


import os


def who_am_i(env, gpus):
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return {
        "rank": int(os.environ.get("RANK", 0)),
        "world_size": int(os.environ.get("WORLD_SIZE", 1)),
        "node_rank": int(os.environ.get("GROUP_RANK", 0)),
        "device": f"cuda:{local_rank}" if gpus >= here else "cpu",
    }
