# ch15.ds_config: edit this file, then run `dtlearn grade ch15.ds_config`.
"""Write the configuration of a DeepSpeed run.

DeepSpeed is told by one dict what chapters 3 to 10 built by hand. The keys of this exercise:

| key | value | when it is left out |
|---|---|---|
| `train_batch_size` | samples of a step | follows from two others |
| `train_micro_batch_size_per_gpu` | samples of one pass of a replica | follows |
| `gradient_accumulation_steps` | passes of a step | follows |
| `gradient_clipping` | largest norm; 0: none | **1.0**, since 0.19.3 |
| `bf16`, `fp16` | `{"enabled": True}` | float32 |
| `zero_optimization` | `stage`, 0 to 3 | 0 |
| in it: `offload_optimizer`, `offload_param` | `{"device": "cpu"}` | on the GPU |
| `optimizer` | `{"type": "Adam", "params": {...}}` | you pass an optimizer |
| in its `params`: | `lr`, `weight_decay` | as in torch's optimizer |
| | `torch_adam`: torch's own | False: compiled at the first start |
| | `adam_w_mode`: decay beside the gradient, as AdamW | **True, also with the type "Adam"** |

**Given** what is wanted

- `world_size`, `pp`: the ranks, and how many of them make one pipeline. There are world_size / pp replicas;
- `micro_batch`, `global_batch`; `precision`: `"fp32"`, `"bf16"` or `"fp16"`; `stage`;
- `offload`: `"none"`, `"optimizer"`, or `"parameters"`, which means optimizer and parameters;
- `clipping`: the largest norm, or `None` for no clipping;
- `rule`: `"adam"`, whose weight decay is added to the gradient (L2), or `"adamw"`; `lr`; `weight_decay`;
- `device`: `"cuda"` or `"cpu"`.

**Return** the dict. It has only keys of the table. Clipping is always stated, for numbers are compared here,
and the default has changed once; so is `torch_adam`, as true: no compiler is needed.

**Example**: 4 ranks, `micro_batch=2`, `global_batch=16`, `precision="bf16"`, `stage=2`, and no clipping

| key | value |
|---|---|
| `train_batch_size`, the micro-batch, the accumulation | 16, 2, 2 |
| `gradient_clipping` | 0.0 |
| `bf16` | `{"enabled": True}` |
| `zero_optimization` | `{"stage": 2}` |

and the optimizer.

**Rules**: raise a `ValueError` for what DeepSpeed cannot do, or ignores without a word:

- a global batch that micro-batches and replicas do not divide;
- `fp16` on a processor;
- ZeRO 2 or 3 with a pipeline (`pp` above 1);
- an offloaded optimizer in stage 0, and offloaded parameters below stage 3.
"""

from typing import Any


def ds_config(
    *,
    world_size: int,
    pp: int,
    micro_batch: int,
    global_batch: int,
    precision: str,
    stage: int,
    offload: str,
    clipping: float | None,
    rule: str,
    lr: float,
    weight_decay: float,
    device: str,
) -> dict[str, Any]:
    """Return the configuration."""
    raise NotImplementedError(
        "ch15.ds_config: refuse what cannot be, then write the keys"
    )
