"""An optimizer with masters and a mistake in it, or none: what the answers of ch07.master_weights are compared with."""

from __future__ import annotations

from typing import Any

import torch

_LOST = (
    "the updates are rounded to 16 bits in every step, so small ones are lost: the optimizer works on the 16-bit "
    "weights, or on masters that are made from them again in every step"
)
_FEW = ("DTL-VALUE-STALLED", "the masters have fewer bits than float32: updates that a float32 number keeps are lost")
# Its name, and what is said of it. The order matters: the first that fits is told.
MISTAKES: dict[str, tuple[str, str]] = {
    "not copied": ("DTL-VALUE-NOT-COPIED", "the model's weights never change: the masters' values are not copied back"),
    "late": (
        "DTL-VALUE-LATE",
        "the weights are one step late: the masters are copied into the model before the optimizer's step, not after",
    ),
    "no masters": ("DTL-VALUE-STALLED", _LOST),
    "new masters": ("DTL-VALUE-STALLED", _LOST),
    "float16 masters": _FEW,
    "16 bits and a rest": _FEW,
    "cut off": (
        "DTL-VALUE-TRUNCATED",
        "the masters' last bits are cut off on their way into the weights: copy_ rounds to the nearest number",
    ),
    "away from zero": (
        "DTL-VALUE-ROUNDING",
        "the weights are the masters rounded away from zero: copy_ rounds to the nearest number",
    ),
    "old gradient": (
        "DTL-VALUE-OLD",
        "a gradient that is None leaves the one of an earlier step in the master, and the weight moves by it again",
    ),
    "zeros": (
        "DTL-VALUE-ZEROED",
        "a gradient that is None became zeros: the momentum still moves the weight; the master's must be None too",
    ),
    "none for zeros": (
        "DTL-VALUE-LEFT-OUT",
        "a gradient of zeros is taken for None: the momentum still moves the weight, as in torch's optimizers",
    ),
    "added up": (
        "DTL-VALUE-ADDED-UP",
        "the masters' gradients are added up over the steps: each step has the gradients of this step only",
    ),
    "new optimizer": (
        "DTL-VALUE-STATE",
        "the optimizer's state is lost between steps (its momentum, or Adam's moments): make the optimizer once",
    ),
    "all or none": (
        "DTL-VALUE-LEFT-OUT",
        "no weight is trained in a step in which one gradient is None: only that one is left out",
    ),
    "float32 left out": ("DTL-VALUE-LEFT-OUT", "the float32 weight never changes: it is trained like the others"),
    "two steps": ("DTL-VALUE-DONE-TWICE", "two steps of the optimizer in each step()"),
    "options": ("DTL-VALUE-OPTIONS", "the options are ignored: the optimizer has its default learning rate"),
    "first option": ("DTL-VALUE-OPTIONS", "only the learning rate reaches the optimizer: it gets all options"),
    "plain SGD": ("DTL-VALUE-OPTIONS", "plain SGD, whatever optimizer_class and the options are"),
    "SGD": ("DTL-VALUE-OPTIONS", "the optimizer is SGD, whatever optimizer_class is"),
    "by its name": (
        "DTL-VALUE-OPTIONS",
        "optimizer_class is a class of its own in this case, and another one trains: make an optimizer_class(...)",
    ),
}


class Masters:
    """As what `master_weights` returns should be.

    Args:
        mistake: a key of MISTAKES, or "".
        parameters, optimizer_class, options: what the exercise is given.
        own: float32 weights are their own masters.
    """

    def __init__(self, mistake: str, parameters: list[Any], optimizer_class: Any, options: Any, own: bool) -> None:
        self._is, self._weights = mistake, parameters
        self._masters = [self._master(weight.detach(), own) for weight in parameters]
        self._rests = [torch.zeros_like(weight) for weight in parameters]
        rate = {"lr": next(iter(options.values()))}
        if mistake == "plain SGD" or (mistake == "by its name" and not hasattr(torch.optim, optimizer_class.__name__)):
            optimizer_class, options = torch.optim.SGD, rate if "lr" in options or mistake == "plain SGD" else {}
        if mistake == "SGD":
            allowed = ("momentum", "weight_decay")
            optimizer_class, options = torch.optim.SGD, rate | {k: v for k, v in options.items() if k in allowed}
        if mistake in ("options", "first option"):
            options = dict([*options.items()][: mistake == "first option"])
        self._make = lambda: optimizer_class(self._masters, **options)
        self._optimizer = self._make()

    def _master(self, weight: torch.Tensor, own: bool) -> torch.Tensor:
        if self._is == "no masters" or (own and weight.dtype == torch.float32):
            return weight
        is_half = self._is == "float16 masters" and weight.dtype == torch.bfloat16
        return weight.to(torch.float16 if is_half else torch.float32, copy=True)

    @torch.no_grad()
    def step(self) -> None:
        if self._is == "all or none" and any(weight.grad is None for weight in self._weights):
            return
        if self._is == "new optimizer":
            self._optimizer = self._make()
        before = [master.clone() for master in self._masters]
        for master, weight, rest in zip(self._masters, self._weights, self._rests, strict=True):
            if self._is == "new masters" or (self._is == "16 bits and a rest" and weight.dtype != torch.float32):
                master.copy_(weight.float() + rest.float())
            self._hand_over(master, weight)
        for _ in range(2 if self._is == "two steps" else 1):
            self._optimizer.step()
        new = before if self._is == "late" else self._masters
        for weight, master, rest, old in zip(self._weights, new, self._rests, self._masters, strict=True):
            if self._is == "not copied" or old.data_ptr() == weight.data_ptr():
                continue
            weight.copy_(_rounded(master, weight.dtype, self._is))
            if self._is == "16 bits and a rest":
                rest.copy_(master - weight.float())

    def _hand_over(self, master: torch.Tensor, weight: torch.Tensor) -> None:
        old = master.grad
        if self._is == "float32 left out" and weight.dtype == torch.float32:
            gradient = None
        elif weight.grad is not None:
            gradient = weight.grad.to(master.dtype)
            gradient = gradient + old if self._is == "added up" and old is not None else gradient
            gradient = None if self._is == "none for zeros" and not gradient.any() else gradient
        elif self._is == "zeros":
            gradient = torch.zeros_like(master)
        else:
            gradient = old if self._is in ("old gradient", "added up") else None
        master.grad = gradient


def _rounded(master: torch.Tensor, dtype: torch.dtype, mistake: str) -> torch.Tensor:
    """With the bits that `dtype` has no place for cut off, towards zero or after the next number was taken."""
    dropped = {torch.bfloat16: 16, torch.float16: 13}.get(dtype)
    if mistake not in ("cut off", "away from zero") or not dropped:
        return master
    bits = master.view(torch.int32) + ((1 << dropped) - 1 if mistake == "away from zero" else 0)
    return (bits >> dropped << dropped).view(torch.float32)
