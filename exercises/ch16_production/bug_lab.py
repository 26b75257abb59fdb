# ch16.bug_lab: edit this file, then run `dtlearn grade ch16.bug_lab`.
"""Find the faults of ten programs.

The lab has ten programs of 15 to 40 lines. Each has **one** fault, of a kind that a public project had and fixed, and
each *hangs*, is *wrong* without an error, or is *slow*. Whatever else looks odd is harmless. Look at one of them:

```python
from dtlearn.production.bug_lab import CAUSES, PROGRAMS, run_program

program = PROGRAMS["sharded_save"]
print(program.report)  # what somebody saw
print(program.listing())  # with the numbers of its lines
run = run_program("sharded_save")  # on 3 ranks; one that hangs is stopped
print(run)  # the diagnosis, what the ranks returned, and which line communicates how much
print(run.calls(rank=0))  # each call of a rank, and when it began and ended
print(run_program("sharded_save", text=program.text.replace("old", "new")))  # is it mended?
```

**Given** the name of a program. **Return** a dict with three keys, or `None` if you have not found the fault yet. Each
program is a case with a point of its own.

- `"ranks"`: the numbers of the ranks whose calls or values are wrong. A rank that only waits for them, or that
  does what it should, is not among them.
- `"line"`: the number of a line that has to change. It is where the fault arises, and not always where it shows. If
  there are several such lines, any of them is right.
- `"cause"`: one of these names.

| name | what it means |
|---|---|
| `"data decide"` | whether a rank makes a collective call depends on what its own data hold |
| `"rank decides"` | a collective call stands in a branch that only some ranks enter |
| `"other order"` | ranks make the same collective calls in different orders |
| `"groups"` | the ranks do not all create the same groups, in one order |
| `"wrong peer"` | a rank's number in its group is taken for its global number, or the other way round |
| `"shape or dtype"` | ranks hand in tensors of different shapes or dtypes |
| `"a copy"` | a collective works on a copy, and its result is lost |
| `"not waited for"` | a tensor is used before its communication has been waited for |
| `"changed meanwhile"` | a tensor is changed while it is still being saved or sent |
| `"one for all"` | all ranks take what one rank had, and each needs its own |
| `"own for each"` | each rank has its own, such as initial weights, and all need the same |
| `"not restored"` | a part of the job's state is not saved, or not restored |
| `"wrong mean"` | a mean is divided by the wrong number, or twice |
| `"too often"` | ranks communicate more often than the result is needed |
| `"too much"` | ranks send more than the result needs |
| `"straggler"` | one rank has more work than the others, and they wait |

**Example**: a program that is none of the ten. The weights should begin equal on 4 ranks:

| line | |
|---|---|
| 7 | `weight = torch.randn(3, generator=torch.Generator().manual_seed(rank))` |
| 8 | `dist.all_reduce(gradient)` |
| 9 | `weight -= gradient / n` |

It ends with other weights on each rank. They differ from line 7 on, and those of rank 0 may stay as they are:
`{"ranks": [1, 2, 3], "line": 7, "cause": "own for each"}`.

**Rule**: no communication. You run the programs in other cells; your function runs none, and knows what you found.
"""

from typing import Any


def bug_lab(program: str) -> dict[str, Any] | None:
    """Return what is wrong with the program of that name."""
    raise NotImplementedError(
        "ch16.bug_lab: run each program, find its fault, and write it down in a table"
    )
