"""An optimizer whose state is in host memory, and whose updates the host's processor computes: ZeRO-Offload.

A step moves 4 bytes per parameter if weights and gradients have 16 bits: the gradient down, the new weight up. What it
leaves on the device is the weights and gradients. Master weights and moments, 12 bytes per parameter with Adam, are on
the host. Each rank does that with its pieces, so that N hosts, or N processes on one, share the work.

Sources: ZeRO-Offload, 2101.06840, section 4; DeepSpeed's `offload_optimizer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from dtlearn.sharing.host_memory import Host

MASTER = "master"  # in the state of a 16-bit piece: its float32 value


class OffloadedOptimizer(torch.optim.Optimizer):
    """An optimizer over pieces on the device, with its state and master weights on the host.

    `offloaded(torch.optim.AdamW)` makes the class for an optimizer, which stands wherever that one
    could: over a plain model, over `FlatParameters.pieces`, or inside `ZeroRedundancyOptimizer`. Gradients
    are on the pieces, for a scaler or for clipping, as ever.

    A piece on the host, as `FullyShardedDataParallel(offload=...)` has them, is its own master: nothing is moved.

    **Communication**: none between ranks. In a step, gradients go to the host and values to the
    device: with b bytes in a value, 2b per parameter that has a gradient.
    **Memory**: on the device none. On the host, with Adam, 12 bytes per parameter, 4 of them the float32
    master. In a step 4 more, the gradients; with 16 bits the b = 2 that are moved, too.

    Args:
        params: pieces, named pieces or groups, as for any optimizer.
        host: where state and masters are; None: a host of its own.
        defaults: options of the optimizer, such as `lr`.

    Attributes:
        host: with the bytes that are there, and that were moved.
        inner: the optimizer on the host, over the masters.

    Raises:
        TypeError: this class itself, which has no optimizer, or a parameter that is no floating-point tensor.
        ValueError: as the optimizer does.
    """

    optimizer_class: ClassVar[type[torch.optim.Optimizer] | None] = None

    def __init__(self, params: Any, *, host: Host | None = None, **defaults: Any) -> None:
        if self.optimizer_class is None:
            raise TypeError("say which optimizer: offloaded(torch.optim.AdamW)(pieces, lr=...)")
        self.host = host or Host()
        groups = torch.optim.Optimizer(params, {}).param_groups  # the class itself reads them, and has no options
        self.inner = self.optimizer_class([self._with_masters(group) for group in groups], **defaults)
        super().__init__(groups, self.inner.defaults)

    @property
    def pairs(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        """Each piece, and its master on the host."""
        for group, on_host in zip(self.param_groups, self.inner.param_groups, strict=True):
            yield from zip(group["params"], on_host["params"], strict=True)

    def step(self, closure: Callable[[], Any] | None = None, **options: Any) -> Any:
        """Move the gradients to the host, update there, and move the new values to the device.

        Args:
            closure: computes the loss and its gradients; called once, before anything is moved.
            options: for the optimizer's own `step`, which need not take a closure.

        Returns:
            The closure's value; None without one.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._share_options()
        self._move_gradients()
        self.host.run(partial(self.inner.step, **options))
        self._move_values()
        self._show_state()
        return loss

    def _move_gradients(self) -> None:
        """Move the gradients to the host: all are on their way before one is waited for."""
        moved = [(p, m) for p, m in self.pairs if m is not p]
        copies = [None if piece.grad is None else self.host.download(piece.grad) for piece, _ in moved]
        self.host.finish()
        for (_, master), copy in zip(moved, copies, strict=True):
            master.grad = None if copy is None else self._in_dtype(copy, master.dtype)

    def _move_values(self) -> None:
        """Send back pieces that had a gradient; rounded on the host, so that the format with fewer bytes is sent."""
        leaving = []
        for piece, master in self.pairs:
            if master is not piece and master.grad is not None:
                master.grad = None
                leaving.append(self._in_dtype(master.detach(), piece.dtype))
                self.host.upload_into(piece, leaving[-1])
        self.host.finish()  # before anyone changes what is still being copied

    def _in_dtype(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensor if tensor.dtype == dtype else self.host.keep(tensor, dtype)

    @torch.no_grad()
    def copy_pieces_to_masters(self) -> None:
        """Call it after the pieces got other values: otherwise the next step would bring the old ones back."""
        for piece, master in self.pairs:
            if master is not piece:
                values = self.host.download(piece.detach())
                self.host.finish()
                self.host.run(partial(master.copy_, values))

    def _with_masters(self, group: dict[str, Any]) -> dict[str, Any]:
        return {**group, "params": [self._master_of(piece) for piece in group["params"]]}

    def _master_of(self, piece: nn.Parameter) -> nn.Parameter:
        if not piece.is_floating_point():
            raise TypeError(f"a parameter is {piece.dtype}, and only floating-point parameters can be trained")
        if self.host.holds(piece):
            return piece
        copy = self.host.download(piece.detach())
        self.host.finish()
        values = self._in_dtype(copy, torch.float32 if piece.itemsize < 4 else piece.dtype)
        return nn.Parameter(values, requires_grad=piece.requires_grad)

    def _share_options(self) -> None:
        """Rates and the like, which a scheduler changes in the groups that users see."""
        for group, on_host in zip(self.param_groups, self.inner.param_groups, strict=True):
            on_host.update({key: value for key, value in group.items() if key != "params"})

    def _show_state(self) -> None:
        """New state goes to memory that counts as the host's. All is shown under the pieces, and masters with it."""
        for piece, master in self.pairs:
            if not (state := self.inner.state.get(master)):
                continue
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and not self.host.holds(value):
                    state[key] = self.host.keep(value)
            is_rounded = master.dtype != piece.dtype
            self.state[piece] = {**state, MASTER: master.detach()} if is_rounded else dict(state)

    def __getstate__(self) -> dict[str, Any]:
        """Refused: a copy, or what is read from a file, would have its state in the device's memory."""
        raise TypeError(
            f"{type(self).__name__} has its state on a host and cannot be copied or pickled: build another one over "
            "the copy's pieces, and give it this one's state_dict() by load_state_dict()"
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train these pieces too."""
        super().add_param_group(param_group)
        if len(self.param_groups) > len(self.inner.param_groups):  # not so when the constructor adds its groups
            self.inner.add_param_group(self._with_masters(self.param_groups[-1]))

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; of 16-bit pieces the masters too, and the pieces get them, rounded.

        Args:
            state_dict: of this class, or of the plain optimizer. Masters that are not in it become the values of the
                pieces: give those their values first.

        Raises:
            ValueError: it does not fit the pieces.
        """
        by_number = state_dict["state"]
        plain = {n: {k: v for k, v in state.items() if k != MASTER} for n, state in by_number.items()}
        self.inner.load_state_dict({**state_dict, "state": plain})
        for group, on_host in zip(self.param_groups, self.inner.param_groups, strict=True):
            group.update({key: value for key, value in on_host.items() if key != "params"})
        self.copy_pieces_to_masters()
        for number, (piece, master) in enumerate(self.pairs):
            if MASTER in by_number.get(number, {}):
                self.host.run(partial(master.copy_, by_number[number][MASTER].view_as(master)))
                rounded = self._in_dtype(master.detach(), piece.dtype)
                self.host.upload_into(piece, rounded)
                self.host.finish()
        self.state.clear()
        self._show_state()


def offloaded(optimizer_class: type[torch.optim.Optimizer]) -> type[OffloadedOptimizer]:
    """The class of an optimizer whose state and updates are on the host."""
    return type(f"Offloaded{optimizer_class.__name__}", (OffloadedOptimizer,), {"optimizer_class": optimizer_class})
