"""Autocast that can be read: each operation gets its inputs in the format that a table says.

PyTorch does this in C++, in front of every operator. Here it is a `TorchFunctionMode`: Python hands over every call of
a torch function or tensor method, the inputs are cast, and the call goes on. The casts are ordinary operations that
autograd records, so the gradient of a float32 weight arrives in float32.

It runs on any device and is there for the numerics: 16 bits save no time on most CPUs.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from dtlearn.sharing.surroundings import Reentry, restored_by_surroundings

from .policy import POLICIES

DEFAULT_DTYPE = {"cpu": torch.bfloat16, "cuda": torch.float16}  # as PyTorch's

# What PyTorch's autocast does otherwise; each has its test.
DIFFERENCES = {
    "one operation": "a function of torch that is written in Python and calls others is one operation here: nothing is "
    "cast inside `nn.MultiheadAttention`, which PyTorch runs in 16 bits",
    "nested dtypes": "a weight's cast is kept per dtype; PyTorch's cache knows one dtype, so that a weight used in a "
    "bfloat16 block and in a float16 block inside it ends in an error",
    "other dtypes": "a dtype that is neither bfloat16 nor float16 is an error; PyTorch warns and casts nothing",
    "any device": '`autocast("cuda")` means the table of a GPU, on tensors of any device; PyTorch\'s has no effect on '
    "CPU tensors",
    "recurrent layers": "`nn.LSTM`, `nn.GRU` and `nn.RNN` are not cast, and refuse a 16-bit input (a ValueError that "
    "says so: `input.to(torch.float32)`): they compare dtypes before any operation, if PyTorch's own autocast is off",
    "recomputation": "`torch.utils.checkpoint` knows PyTorch's autocast and enters it again; for ours it needs "
    "`reenter`",
}


class _State(threading.local):
    """What each thread has for itself: the blocks that it is in, innermost last, and the casts of weights."""

    def __init__(self) -> None:
        self.blocks: list[autocast] = []
        self.casts = WeakIdKeyDictionary()  # weight -> {dtype: cast}


_state = _State()


class autocast(TorchFunctionMode, ContextDecorator):
    """Run the operations of this block in the format that the policy says; the protocol of `torch.autocast`.

    Put forward and loss in it, and backward after it. A block with `enabled=False` inside it leaves everything as it
    is; what comes from outside then has to be cast by hand. It is a decorator too.

    **Memory**: a cast of each weight that is used in 16 bits, 2 bytes per element, until the outermost block ends; then
    the graph holds it until backward, as it does the 16-bit activations. A weight is cast once however often it is used
    in the block. If it is changed meanwhile, by an optimizer's step inside the block say, its cast is out of date: as
    in PyTorch.

    Args:
        device_type: whose table: "cpu" or "cuda"; see `policy.py`.
        dtype: `torch.bfloat16` or `torch.float16`; None: bfloat16 for "cpu", float16 for "cuda".
        enabled: False: nothing is cast in this block.
        cache_enabled: False: weights are cast at every use.

    Raises:
        ValueError: another device type, or another dtype.
    """

    def __init__(
        self, device_type: str, dtype: torch.dtype | None = None, enabled: bool = True, cache_enabled: bool = True
    ) -> None:
        super().__init__()
        if device_type not in POLICIES:
            raise ValueError(f"there is a policy for {' and '.join(POLICIES)}; got {device_type!r}")
        self.dtype = dtype or DEFAULT_DTYPE[device_type]
        if self.dtype not in (torch.bfloat16, torch.float16):
            raise ValueError(f"autocast casts to torch.bfloat16 or torch.float16; got {dtype}: choose one of them")
        self.policy = POLICIES[device_type]
        self.enabled = enabled
        self.cache_enabled = cache_enabled

    def __enter__(self) -> autocast:
        _state.blocks.append(self)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _state.blocks.pop()
        if not _state.blocks:
            _state.casts.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = self.policy.get(getattr(func, "__name__", ""))
        # Python shows a call to every block around it: only the innermost decides. A caller's `out` keeps its format.
        if rule is None or not self.enabled or self is not _state.blocks[-1] or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        fixed = {"16 bits": self.dtype, "fp32": torch.float32}
        dtype = fixed[rule] if rule in fixed else widest((args, kwargs), self.dtype)
        return func(
            *(self.cast_in(arg, dtype) for arg in args),
            **{name: self.cast_in(arg, dtype) for name, arg in kwargs.items()},
        )

    def cast_in(self, arg: Any, dtype: torch.dtype) -> Any:
        """An argument with its tensors cast: it is one, or a list or tuple of them, as `torch.cat` takes, or has none.

        `tree_map_only` of `torch.utils._pytree` does this too, and takes longer than the cast of a small tensor.
        """
        if isinstance(arg, torch.Tensor):
            return self.cast(arg, dtype)
        return [self.cast_in(each, dtype) for each in arg] if isinstance(arg, list | tuple) else arg

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The tensor in that format; itself, if it is of integers or float64. A weight's 16-bit cast is kept."""
        if not tensor.is_floating_point() or tensor.dtype in (torch.float64, dtype):
            return tensor
        to_16_bits = tensor.dtype is torch.float32 and dtype == self.dtype
        is_weight = tensor.is_leaf and tensor.requires_grad and not tensor._is_view()
        # A cast made in inference mode has no graph, and a later use in this block may need one.
        is_kept = self.cache_enabled and not torch.is_inference_mode_enabled()
        if not (is_weight and to_16_bits and is_kept):
            return tensor.to(dtype)
        casts = _state.casts.setdefault(tensor, {})
        if dtype not in casts:
            with torch.enable_grad():  # also if its first use is under no_grad: the next may not be
                casts[dtype] = tensor.to(dtype)
        weight: torch.Tensor = casts[dtype]
        return weight


def widest(inputs: Any, dtype: torch.dtype) -> torch.dtype:
    """The widest format among the tensors in `inputs` (lists and tuples of them too), at least `dtype`."""
    formats = (leaf.dtype for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
    return functools.reduce(torch.promote_types, (each for each in formats if each.is_floating_point), dtype)


@restored_by_surroundings
def reentry() -> Reentry:
    """Enters the block of now again, whenever it is called; made outside of all blocks, it turns casting off."""
    active = _state.blocks[-1] if _state.blocks else None  # only the innermost block decides

    def enter() -> AbstractContextManager[object]:
        return active or (autocast("cpu", enabled=False) if _state.blocks else nullcontext())

    return enter


def reenter(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run under the autocast that is active now, whenever and wherever it is called.

    For `torch.utils.checkpoint.checkpoint(reenter(block), x, use_reentrant=False)`: the block is computed a second time
    in backward, when the autocast of the forward pass is over. Without it the second pass would run in other formats
    than the first: float32 weights meet 16-bit inputs, or checkpoint finds tensors of another dtype. Both are errors.
    (`dtlearn.memory.checkpoint` does it by itself.)
    """
    if not _state.blocks:
        return function
    enter = reentry()

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with enter():
            return function(*args, **kwargs)

    return run
