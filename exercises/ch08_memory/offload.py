# ch08.offload: edit this file, then run `dtlearn grade ch08.offload`.
"""Move what autograd saves to another memory, and back.

Autograd hands each tensor that it saves to a function `pack`, and keeps what that returns. When backward
needs the tensor, `unpack` gets that value and must return the tensor. So the activations can wait on the
host, and the device's memory is free until backward.

**Given** `host`, a memory for storages (the memory behind a tensor and all its views):

- `host.put(storage)` copies a storage, and returns the copy, an object that `weakref` can refer to. The
  host's memory is freed as soon as nobody has the copy any more.
- `host.get(copy)` returns a new storage on the device, with the same bytes.

`parameters`, the model's; and `min_bytes`.

**Return** the pair `pack`, `unpack`. It is used for several training steps:

```python
pack, unpack = offload(host, list(model.parameters()), min_bytes)  # once
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    loss = loss_fn(model(x), y)
loss.backward()
```

- Storages of `min_bytes` or more go to the host, smaller ones stay. A small view of a large storage
  counts as large: as long as it is there, so is all of the storage.
- Storages of parameters never go to the host: they stay on the device anyway. A transposed weight is a
  view of the weight.
- Often several operations save one tensor, or views of it. As long as its copy is there, a storage is not copied
  again. In the next step it is, also one that lives on, such as a mask: it may have changed since.
- `unpack` returns a tensor with the values, shape, strides and dtype of the one that was packed.
- Nothing keeps an activation on the device, and after `backward()` nothing keeps a copy on the host. The
  same if the loss is dropped without a backward pass.

**Example** with `min_bytes` 1,000: x has 4,000 bytes.

| autograd saves | host.put | what pack returns |
|---|---|---|
| `x` | x's storage | what `unpack` needs to make x again |
| `x.t()` | nothing: x was copied | the same for x.t(), with the same copy |
| `weight.t()` | nothing | the tensor, detached |
| a tensor of 40 bytes | nothing | the tensor, detached |

Detached, as PyTorch's documentation asks: a node that keeps its own result, with its graph, keeps itself
alive. When x is gone, its address may belong to another tensor soon. That one is copied, too.

**Rules**: no communication. Do not use `torch.autograd.graph.save_on_cpu`.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch


def offload(host: Any, parameters: Sequence[torch.Tensor], min_bytes: int) -> tuple[Callable, Callable]:
    """Return the hooks pack and unpack."""
    raise NotImplementedError(
        "ch08.offload: decide what goes to the host, and remember the copies that are "
        "still there"
    )
