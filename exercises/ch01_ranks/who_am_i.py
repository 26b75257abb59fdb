# ch01.who_am_i: edit this file, then run `dtlearn grade ch01.who_am_i`.
"""Read a process's place in the job from its environment.

| argument | meaning |
|---|---|
| `env` | the environment as the launcher set it, a dict of strings |
| `gpus` | the number of GPUs of the machine on which the process runs |

Return a dict: `rank`, `world_size` and `node_rank` are integers, `device` is a string.

- **Device.** A process takes the GPU whose number is that of the process on its machine. If the machine has fewer
  GPUs than processes of this job, every process there takes `"cpu"`.
- **Without a launcher** (`python train.py`) none of the names is set. The process is then rank 0 of 1, on node 0, with
  the first GPU if there is one.
- Machines may run different numbers of processes, so do not compute one of the numbers from the others.

Example, on a machine with 8 GPUs:

| `RANK` | `LOCAL_RANK` | `GROUP_RANK` | `WORLD_SIZE` | `LOCAL_WORLD_SIZE` |
|---|---|---|---|---|
| `"9"` | `"3"` | `"1"` | `"12"` | `"6"` |

gives `{"rank": 9, "world_size": 12, "node_rank": 1, "device": "cuda:3"}`.
"""

from collections.abc import Mapping


def who_am_i(env: Mapping[str, str], gpus: int) -> dict[str, int | str]:
    """The place of this process: rank, world_size, node_rank and device."""
    raise NotImplementedError(
        "ch01.who_am_i: read the names, also when they are missing, and choose the "
        "device"
    )
