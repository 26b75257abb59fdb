"""Save a checkpoint of many ranks so that it is there as a whole or not at all.

A job may be killed at any moment, and the power may fail. What is on the disk then must be the old checkpoint or the
new one, whole: never half of one, and never parts of both.

**The reader** defines what a checkpoint is. It takes the step that the file `latest` names, and of this step one part
for each rank: if `latest` holds `b"8"`, the files `step-8/rank0`, `step-8/rank1` and so on. It reads nothing else:
other files may lie there, and may be half, such as parts of step 8 that a job left when it died.

**Given**, on each rank

- `disk`, a folder that all ranks share. It has no other functions than these:

| call | what it does |
|---|---|
| `disk.write(name, data)` | makes a file with these bytes, or replaces what it holds; at some moments half is there |
| `disk.rename(old, new)` | gives a file another name, at one moment. A file that had the name is gone |
| `disk.remove(name)` | deletes a file |
| `disk.fsync(name)` | forces the bytes of a file to the disk, but not its name |
| `disk.fsync_folder()` | forces all names to the disk, those of all ranks: new files, renames, removals |

- `step`, a number, and `part`, the bytes of this rank's part;
- `old`, an earlier step that is no longer needed afterwards, perhaps the one that `latest` names; or `None`;
- `rank`, and `barrier()`, which returns when all ranks have called it. If one of them is dead, it raises an exception:
  let it through.

**A kill** may come before and after each call, and within a write. Calls of the ranks between two barriers come in any
order. All calls up to the kill have had their effect. **A power cut** leaves what was forced to the disk; of all else,
each name and each file's bytes may be there, or not, or half, each by itself.

**Afterwards** `latest` names `step`, also after a power cut. If `old` is a step, each rank has deleted its own
part of it.

**Example**: 2 ranks save step 8, `latest` names step 5, and a rank dies.

| when | `latest` | may a job go on? |
|---|---|---|
| rank 1 has written half of its part | `5` | yes, from step 5 |
| rank 0 has written `8` in the place of `5`, rank 1 half of its part | `8` | no: the new one is not whole |
| all parts of step 8 are there, and the name `latest` has moved to a file with `8` | `8` | yes, from step 8 |

**Rules**: the ranks meet in `barrier()` only, and all of them call it equally often. No two ranks change the same file
between two barriers.
"""

from collections.abc import Callable
from typing import Any


def atomic_commit(
    disk: Any,
    step: int,
    part: bytes,
    old: int | None,
    rank: int,
    barrier: Callable[[], None],
) -> None:
    """Save this rank's part, and make a checkpoint of all parts."""
    # BEGIN SOLUTION: the part, then all parts, then the one moment at which latest names them, then the old part
    name = f"step-{step}/rank{rank}"
    disk.write(name, part)
    disk.fsync(name)
    barrier()
    if rank == 0:
        disk.fsync_folder()
        disk.write("latest.new", str(step).encode())
        disk.fsync("latest.new")
        disk.rename("latest.new", "latest")
        disk.fsync_folder()
    barrier()
    if old is not None:
        disk.remove(f"step-{old}/rank{rank}")
    # END SOLUTION
