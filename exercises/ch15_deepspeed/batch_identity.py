# ch15.batch_identity: edit this file, then run `dtlearn grade ch15.batch_identity`.
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
    raise NotImplementedError(
        "ch15.batch_identity: find dp, fill in what is missing, and refuse what does "
        "not fit"
    )
