"""Choose the least ZeRO stage, and the least offload, that fits.

Mixed-precision training with Adam keeps 16 bytes for each parameter. Stages divide them among the N ranks, and
offload moves them to the memory of the rank's host:

| what | bytes | divided from stage | moved by |
|---|---|---|---|
| 16-bit parameters | 2 | 3 | `"parameters"` |
| 16-bit gradients | 2 | 2 | `"optimizer"` |
| optimizer: float32 copy, two moments | 12 | 1 | `"optimizer"` |

What is divided takes ceil(P / N) times its bytes on a rank, for P parameters. Offloading the `"parameters"` moves
the optimizer and the gradients, too. In stage 3 a GPU holds, beside its part, the largest layer whole:
4 bytes for each of its parameters (values and gradients). All GPUs also hold `activations`.

**Given** `num_params`; `largest_layer`, its parameters; `nodes`, and `gpus_per_node`, one rank each;
`activations`, bytes of a GPU; `gpu_bytes` of each GPU; `host_bytes` of each node, shared by its ranks.

**Return** of the first choice in this list that fits a dict with the keys `"stage"`, `"offload"`, and
`"gpu"` and `"host"`, the bytes on a GPU and on a node. Each choice is slower than those before it, as a rule:

| | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
|---|---|---|---|---|---|---|---|
| stage | 0 | 1 | 2 | 2 | 3 | 3 | 3 |
| offload | none | none | none | optimizer | none | optimizer | parameters |

What takes exactly all of a memory fits. If none fits, raise a `ValueError`.

**Example**: 1000 parameters, the largest layer has 100, 2 nodes with 2 GPUs each, no activations.

| choice | on a GPU | on a node |
|---|---|---|
| stage 1 | 2000 + 2000 + 12 · 250 = 7000 | 0 |
| stage 2, optimizer | 2000 | 2 · 14 · 250 = 7000 |
| stage 3, parameters | 4 · 100 = 400 | 2 · 16 · 250 = 8000 |

With GPUs of 7000 bytes the answer is stage 1. With GPUs of 2000 and nodes of 7000 bytes it is the second row,
and with nodes of 6999 bytes nothing is left but stage 3 without offload, if 4400 bytes fitted on a GPU: so a
`ValueError`.

The bytes are those of the papers [ZeRO](https://arxiv.org/abs/1910.02054) and
[ZeRO-Offload](https://arxiv.org/abs/2101.06840). DeepSpeed's own estimators count 18 or 20 bytes in the place of 16,
for its gradients are float32 in the optimizer, and half as much again on the host.

**Rule**: no communication. It decides about it.
"""

from typing import Any


def stage_and_offload(
    *,
    num_params: int,
    largest_layer: int,
    nodes: int,
    gpus_per_node: int,
    activations: int,
    gpu_bytes: int,
    host_bytes: int,
) -> dict[str, Any]:
    """Return the first choice that fits, with its bytes."""
    # BEGIN SOLUTION: add up the bytes of each choice, in the order of the list
    ranks = nodes * gpus_per_node
    part = -(-num_params // ranks)
    choices = [(0, "none"), (1, "none"), (2, "none"), (2, "optimizer")]
    choices += [(3, "none"), (3, "optimizer"), (3, "parameters")]
    for stage, offload in choices:
        weights = 2 * (part if stage >= 3 else num_params)
        gradients = 2 * (part if stage >= 2 else num_params)
        optimizer = 12 * (part if stage >= 1 else num_params)
        on_gpu = activations + (4 * largest_layer if stage == 3 else 0)
        on_gpu += 0 if offload == "parameters" else weights
        on_gpu += gradients + optimizer if offload == "none" else 0
        moved = 0 if offload == "none" else gradients + optimizer
        moved += weights if offload == "parameters" else 0
        on_node = gpus_per_node * moved
        if on_gpu <= gpu_bytes and on_node <= host_bytes:
            return {"stage": stage, "offload": offload, "gpu": on_gpu, "host": on_node}
    raise ValueError(f"nothing fits in {gpu_bytes} bytes of a GPU and {host_bytes} of a node")
    # END SOLUTION
