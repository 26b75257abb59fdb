"""Save a training job and take it up again so that nobody can tell that it was stopped.

A job that saved its weights only goes on, and its loss looks well after a while. But it is another run: the momentum is
0, samples come twice, dropout draws other masks. Here all bits have to be the same.

**Given** `job`, this rank's part of a data-parallel job. On all ranks these are alike:

| | |
|---|---|
| `job.model` | a module with parameters and a buffer, the moving average of the parameters |
| `job.optimizer` | SGD, which may have momentum |
| `job.scheduler` | of the learning rate |
| `job.scaler` | a loss scale that adapts |
| `job.sampler` | which samples come next |
| `job.step` | a number: steps made |

All but the last have `state_dict()` and `load_state_dict(state)`. Each rank has its own

| | |
|---|---|
| `job.residual` | a tensor: what error feedback has not sent yet |
| torch's generator | dropout draws from it: `torch.get_rng_state()`, `torch.set_rng_state(state)` |
| Python's generator | `random` draws flips of the samples: `random.getstate()`, `random.setstate(state)` |

**Write** a class with

- `save(job)`, which returns `(shared, own)`, two dicts of plain values and tensors. Of `shared` the one of rank 0 is
  kept, and given to all ranks. Of `own` each rank's is kept, and given to this rank;
- `load(job, shared, own)`, which makes a new job, in a new process, what the saved one was.

**Example**: the job of `dtlearn try` on 2 ranks, which save after step 4. Losses:

| step | 4 | 5 | 6 | 7 | 8 |
|---|---|---|---|---|---|
| not stopped | 9.1087 | 7.2649 | 5.6521 | 4.3705 | 3.4121 |
| stopped, and taken up again | 9.1087 | 7.2649 | 5.6521 | 4.3705 | 3.4121 |

**Rules**

- The job trains on after `save` as if nothing had been, while what `save` returned is written to files: that may not
  change any more.
- `load` runs in a new process, which has the two dicts, and nothing else that `save` left behind.
- `own` has nothing that is alike on all ranks, not even a counter: 1000 ranks would write it 1000 times.
- The files are read with `torch.load(file, weights_only=True)`: numbers, texts, tensors, and dicts, lists and tuples of
  these.
"""

import copy
import random
from typing import Any

import torch

State = dict[str, Any]


class resume_bits:
    """A way to save a job and to take it up again."""

    alike = ("model", "optimizer", "scheduler", "scaler", "sampler")

    def save(self, job: Any) -> tuple[State, State]:
        """Return what all ranks have alike, and what this rank has of its own."""
        # BEGIN SOLUTION: collect both, as copies
        shared = {name: getattr(job, name).state_dict() for name in self.alike}
        shared["step"] = job.step
        own = {"residual": job.residual, "torch": torch.get_rng_state(), "python": random.getstate()}
        return copy.deepcopy((shared, own))
        # END SOLUTION

    def load(self, job: Any, shared: State, own: State) -> None:
        """Make a new job what the saved one was."""
        # BEGIN SOLUTION: give each part its state
        for name in self.alike:
            getattr(job, name).load_state_dict(shared[name])
        job.step = shared["step"]
        job.residual = own["residual"]
        torch.set_rng_state(own["torch"])
        random.setstate(own["python"])
        # END SOLUTION
