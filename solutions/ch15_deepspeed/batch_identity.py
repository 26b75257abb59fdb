"""Fill in the batch sizes of a `ds_config`, as DeepSpeed does.

A step of training takes

> `train_batch_size` = `train_micro_batch_size_per_gpu` · `gradient_accumulation_steps` · dp

samples. dp is the number of data-parallel replicas: the ranks, divided by those that share one replica's
layers (`tp`) and those that hold its stages (`pp`).

**Given** `config`, a `ds_config` in which some of the three keys may be missing; `world_size`; `tp`; `pp`.

**Return** a new dict: `config`, with all three keys in it. `config` itself stays as it is.

| there is | what is missing |
|---|---|
| two of the three | follows from the identity |
| only the micro-batch or only the global batch | the accumulation is 1, the third follows |
| only the accumulation, or none | cannot be known: a `ValueError` |

**Example**: 8 ranks, `tp=2`, `pp=1`, so dp = 4.

| key | `config` | result |
|---|---|---|
| `train_batch_size` | 64 | 64 |
| `train_micro_batch_size_per_gpu` | 8 | 8 |
| `gradient_accumulation_steps` | | 2 |

**Rules**

- Raise a `ValueError` when tp · pp does not divide the ranks, and when a size is below 1.
- Raise a `ValueError` when the identity does not hold: a remainder is never rounded away. Its message names
  the global batch and dp.
- DeepSpeed asserts the same in `runtime/config.py`, and with a pipeline calls the accumulation steps
  micro-batches. You use torch and Python only.
"""

from typing import Any

TRAIN = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"


def batch_identity(
    config: dict[str, Any],
    world_size: int,
    tp: int = 1,
    pp: int = 1,
) -> dict[str, Any]:
    """Return the config with all three batch sizes."""
    # BEGIN SOLUTION: find dp, fill in what is missing, and refuse what does not fit
    if world_size % (tp * pp):
        raise ValueError(f"tp {tp} times pp {pp} do not divide {world_size} ranks")
    dp = world_size // (tp * pp)
    train, micro, steps = (config.get(key) for key in (TRAIN, MICRO, STEPS))
    if train is None and micro is None:
        raise ValueError(f"give {TRAIN} or {MICRO}: the accumulation alone says nothing")
    if any(size is not None and size < 1 for size in (train, micro, steps)):
        raise ValueError(f"every size is 1 or more, not {train}, {micro}, {steps}")
    if steps is None:
        steps = 1 if train is None or micro is None else train // (micro * dp)
    if micro is None:
        micro = train // (steps * dp)
    if train is None:
        train = micro * steps * dp
    if train != micro * steps * dp:
        raise ValueError(f"{TRAIN} {train} is not {micro} * {steps} * {dp} replicas")
    return {**config, TRAIN: train, MICRO: micro, STEPS: steps}
    # END SOLUTION
