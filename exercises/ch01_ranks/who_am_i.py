# ch01.who_am_i: edit this file, then run `dtlearn grade ch01.who_am_i`.
"""Who am I? A process reads its place in the job from the environment.

Comes in: the environment as the launcher (torchrun, say) left it, a dict of texts such as
    {"RANK": "9", "LOCAL_RANK": "3", "GROUP_RANK": "1", "WORLD_SIZE": "12", "LOCAL_WORLD_SIZE": "6", ...}
and `gpus`, the number of GPUs of the machine that the process runs on.

Goes out: a dict with four values.
    "rank", "world_size", "node_rank"   whole numbers
    "device"                            a text: "cuda:3", or "cpu"

The device: a process takes the GPU with its own number on its machine. If the machine has fewer
GPUs than processes of this job, every process there takes the "cpu".

Without a launcher (`python train.py`) none of the names is set, and the process is the only
one: rank 0 of 1, on node 0, with the first GPU if there is one.

Example: the environment above, on a machine with 8 GPUs, gives
    {"rank": 9, "world_size": 12, "node_rank": 1, "device": "cuda:3"}

Beware: machines may run different numbers of processes, so do not work one number out from the
others.
"""

from collections.abc import Mapping


def who_am_i(env: Mapping[str, str], gpus: int) -> dict[str, int | str]:
    """The place of this process: rank, world_size, node_rank and device."""
    raise NotImplementedError(
        "ch01.who_am_i: read the names, also when they are missing, and choose the "
        "device"
    )
