"""ZeRO stage 1: each rank keeps the optimizer's state of its shard only, updates the shard, and gathers the others'.

Adam keeps 8 bytes for each fp32 parameter, twice the parameter itself, and all N replicas keep the same 8 bytes. But
an element's update needs the gradient and the state of that element only: so one rank does it, for all.

Sources: ZeRO, 1910.02054, sections 5.1 and 7.2; `torch.distributed.optim.ZeroRedundancyOptimizer`, for the interface.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from ..refusals import LOOK_AT_EVERYTHING, LOOK_AT_MATRICES
from ..state_dicts.plain_optimizer import consolidate, own_part
from .flat_parameters import Cost, FlatParameters, Layout, check_parameters, require_dense

ITS_OWN = ("gradients", "flat", "parameters", "pieces", "optim", "_frozen", "_reduced", "_is_checked", "_consolidated")


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """The optimizer of `page_zero2` with groups, closures, clipping, loss scaling, state dicts, whole tensors, errors.

    Any optimizer of torch that treats each element by itself, over this rank's pieces of the parameters: a shard has a
    piece of each, so that each keeps the options of its group. State dicts fit any number of ranks.

    The training loop stays as it is. `param_groups` hold the pieces, with the options of their parameters, so
    schedulers work. Clipping and loss scalers must see the reduced shards: call `shard_gradients` first.

        loss.backward()
        optimizer.shard_gradients()
        scaler.unscale_(optimizer)  # all ranks must agree on an overflow: a scaler with group=
        clip_grad_norm_(optimizer.pieces, 1.0)  # of dtlearn.zero: the norm over all ranks
        scaler.step(optimizer)

    **Communication**, n bytes of parameters, padding included: one all-gather of each bucket in `step`, n (N-1)/N sent
    by each rank. With `gradients="local"` one reduce-scatter of each bucket before it, as much again: 2n (N-1)/N, what
    an all-reduce alone takes, and the figure of the paper. With `gradients="averaged"` DDP's all-reduce came before,
    2n (N-1)/N: together 3n (N-1)/N; and once, in the first step, an all-reduce of 16 bytes shows whether the ranks'
    gradients are alike.
    **Memory**: state of 1/N of the parameters (with Adam 8/N bytes for each fp32 parameter); parameters and gradients
    whole. During a reduction one bucket and a shard of gradients more. After `consolidate_state_dict` the whole state
    on one rank, in the memory of its host, until the next step.

    Args:
        params: parameters, named parameters or groups, as for any optimizer; on all ranks the same, in the same order
            and with the same values, as DDP leaves them. Frozen ones have no place in a shard.
        optimizer_class: such as `torch.optim.AdamW`.
        process_group: ranks that divide the state; None: all.
        gradients: "averaged": the model's gradients are means over the ranks already, by DDP; "local": each rank has
            those of its own batch, and `step` averages them. There a parameter without a gradient on some rank counts
            as zeros; without one on all ranks, it is moved by weight decay and momentum. One that is frozen by now, on
            all ranks, is not moved.
        cap, layout, cost: as `FlatParameters`. For an optimizer that needs whole matrices, layout="whole tensors".
        defaults: options of the optimizer, such as `lr`.

    Attributes:
        optim: the optimizer over the pieces, whose groups and state are this one's.
        flat: the buffers of all parameters that are trained.
        parameters: those of the model, in the order of their groups.
        pieces: of each of them; empty for a frozen one, and where this rank owns nothing.

    Raises:
        ValueError: the optimizer looks at more than one element at a time, or as it or `FlatParameters` do.
        TypeError: as `FlatParameters`.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[torch.optim.Optimizer],
        *,
        process_group: dist.ProcessGroup | None = None,
        gradients: Literal["averaged", "local"] = "averaged",
        cap: int | None = None,
        layout: Layout = "flat",
        cost: Cost | None = None,
        **defaults: Any,
    ) -> None:
        if gradients not in ("averaged", "local"):
            raise ValueError(f"gradients must be 'averaged' or 'local', got {gradients!r}")
        check_optimizer(optimizer_class, layout)
        groups = torch.optim.Optimizer(params, {}).param_groups  # the class itself reads them, and has no options
        self.gradients = gradients
        self.flat = FlatParameters((), group=process_group, cap=cap, layout=layout, cost=cost)
        self.parameters: list[nn.Parameter] = []
        self.pieces: list[nn.Parameter] = []
        self._frozen = set[int]()  # places in `parameters`
        self._reduced = set[int]()  # buckets whose shard of gradients is there
        self._is_checked = gradients == "local" or self.flat.num_ranks == 1  # whether ranks have the same gradients
        self._consolidated: dict[str, Any] | None = None
        self._add_parameters(groups)
        self.optim = optimizer_class(self._with_pieces(groups), **defaults)
        self.share_state()

    def _add_parameters(self, groups: list[dict[str, Any]]) -> None:
        """Put the parameters of these groups into buckets, and cut the pieces."""
        params = [parameter for group in groups for parameter in group["params"]]
        check_parameters([p for p in params if p.requires_grad], self.parameters)
        self.flat.add(p for p in params if p.requires_grad)
        place = {id(parameter): number for number, parameter in enumerate(self.flat.parameters)}
        without = [nn.Parameter(self.flat.empty_piece(p), requires_grad=False) for p in params]
        pairs = zip(params, without, strict=True)
        self.pieces += [self.flat.pieces[place[id(p)]] if id(p) in place else empty for p, empty in pairs]
        self._frozen.update(len(self.parameters) + n for n, p in enumerate(params) if not p.requires_grad)
        self.parameters += params

    def _with_pieces(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        piece = {id(p): piece for p, piece in zip(self.parameters, self.pieces, strict=True)}
        return [{**group, "params": [piece[id(p)] for p in group["params"]]} for group in groups]

    @torch.no_grad()
    def shard_gradients(self) -> None:
        """Give the pieces their gradients, averaged over the ranks, where they have none yet.

        All ranks call it, after the last backward pass of a step; `step` does, if nobody did.

        Raises:
            RuntimeError: a parameter that was frozen has a gradient now; a gradient is sparse; or the ranks have
                different gradients, and gradients="averaged" was given.
        """
        self._check_gradients()
        if not self._is_checked:
            self._is_checked = self._require_averaged()
        for b, bucket in enumerate(self.flat.partition.buckets):
            if b not in self._reduced:
                grads = [self.flat.parameters[number].grad for number in bucket.parameters]
                if self.gradients == "local":
                    self.flat.set_gradients(b, self.flat.reduce_scatter(b, grads))
                else:
                    self._take_averaged(b)
                self.mark_reduced(b)

    def _take_averaged(self, b: int) -> None:
        """Take the gradients of the pieces: the whole mean is here, and each is a view of its part of it."""
        flat = self.flat
        for own in flat.slices[b]:
            gradient, piece = flat.parameters[own.parameter].grad, flat.pieces[own.parameter]
            if gradient is not None:
                piece.grad = gradient.reshape(-1)[own.start : own.stop].view_as(piece)
        for number, empty in flat.empty[b].items():
            if flat.parameters[number].grad is not None:
                flat.pieces[number].grad = empty

    def _require_averaged(self) -> bool:
        """Check that all ranks have the same gradients; False: none has any yet.

        Raises:
            RuntimeError: they have not. Every rank raises it.
        """
        parameters = self.flat.parameters
        norms = [torch.linalg.vector_norm(p.grad).double() for p in parameters if p.grad is not None]
        device = parameters[0].device if parameters else "cpu"
        total = sum((norm.to(device) for norm in norms), torch.zeros((), dtype=torch.float64, device=device))
        extremes = torch.stack([total, -total]).nan_to_num_()  # (2,)
        dist.all_reduce(extremes, dist.ReduceOp.MAX, group=self.flat.group)
        largest, smallest = extremes[0].item(), -extremes[1].item()
        if largest != smallest:
            raise RuntimeError(
                "expected gradients that are averaged over the ranks (gradients='averaged'), but the ranks have "
                f"different ones, with norms between {smallest:.6g} and {largest:.6g}. Wrap the model in "
                "DistributedDataParallel; or build the optimizer with gradients='local', and step() averages them"
            )
        return largest > 0

    def mark_reduced(self, b: int) -> None:
        """Note that the pieces in bucket `b` have the gradients of this step: stage 2 reduces during backward."""
        self._reduced.add(b)

    @property
    def is_reduced(self) -> bool:
        """True if pieces have the gradients of this step."""
        return bool(self._reduced)

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this rank's pieces, and gather all others'.

        Args:
            closure: computes the loss and its gradients anew; called as often as the optimizer wants it. Without one,
                the optimizer's `step` need not know of closures.
            kwargs: handed on to the optimizer's `step`.

        Returns:
            The closure's first value; None without one.

        Raises:
            RuntimeError: as `shard_gradients` and `FlatParameters.all_gather`.
        """
        evaluated = False

        def evaluate() -> Any:
            nonlocal evaluated
            assert closure is not None
            if evaluated:  # the optimizer has moved the pieces since
                self.flat.all_gather()
                self.clear_shards()
            loss, evaluated = closure(), True
            self.shard_gradients()
            return loss

        if closure is None:
            self.shard_gradients()
            self._skip_empty_pieces()
            loss = self.optim.step(**kwargs)
        else:
            loss = self.optim.step(evaluate, **kwargs)
        self.flat.all_gather()
        self.clear_shards()
        self._consolidated = None
        return loss

    def _skip_empty_pieces(self) -> None:
        """Spare torch's own optimizers what they would do for nothing, once the state is there.

        An own optimizer may call a collective for each piece, and is called with all of them.
        """
        if type(self.optim).__module__.startswith("torch.optim."):
            for of_bucket in self.flat.empty:
                for number in of_bucket:
                    if self.flat.pieces[number] in self.optim.state:
                        self.flat.pieces[number].grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of the model, and drop those of the pieces."""
        self.clear_shards()
        for parameter in self.parameters:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter.grad)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train these parameters too; all ranks call it, with the same ones. They have buckets of their own.

        Raises:
            ValueError: one of them is in a group of this optimizer already.
        """
        groups = torch.optim.Optimizer([param_group], {}).param_groups
        self._add_parameters(groups)
        self.optim.add_param_group(self._with_pieces(groups)[0])

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the whole state to one rank, for `state_dict` there. All ranks call it.

        **Communication**: one gather of Python objects: each rank's state goes to rank `to`, pickled.

        Args:
            to: rank in the group.
        """
        self._consolidated = consolidate(self.optim, self.parameters, self._owners(), to, group=self.flat.group)

    def state_dict(self) -> dict[str, Any]:
        """The state of the plain optimizer, over whole parameters, as it was when it was consolidated on this rank.

        It can be loaded here at any number of ranks, and into the plain optimizer.

        Raises:
            RuntimeError: it was not consolidated here after the last step.
        """
        if self._consolidated is None:
            raise RuntimeError(
                "this rank has a shard of the state only. Call consolidate_state_dict(to=...) on all ranks, after the "
                "last step, and state_dict() on the rank that it names"
            )
        return self._consolidated

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load this rank's shard of a whole state, from `state_dict` or from the plain optimizer.

        Args:
            state_dict: the same on all ranks. It is not changed, and nothing of it is kept.

        Raises:
            ValueError: it is no state of an optimizer, or of another one; or it does not fit the parameters, as the
                state of a shard, for one.
        """
        check_state_dict(state_dict, self.optim)
        owners = self._owners() if self.flat.layout == "flat" else None
        self.optim.load_state_dict(own_part(state_dict, self.parameters, self.pieces, owners, self.flat.rank))
        self._consolidated = None
        self.share_state()

    def _owners(self) -> list[tuple[Any, ...]]:
        """The slices of each of `parameters`; of a frozen one, none."""
        place = {id(parameter): number for number, parameter in enumerate(self.flat.parameters)}
        return [self.flat.partition.owners(place[id(p)]) if id(p) in place else () for p in self.parameters]

    def _check_gradients(self) -> None:
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            require_dense(number, parameter.grad)
            if number in self._frozen:
                raise RuntimeError(
                    f"parameter {number}, {tuple(parameter.shape)}, was frozen when the optimizer was built: it has no "
                    "place in a shard. Build the optimizer after requires_grad was set"
                )

    def clear_shards(self) -> None:
        """Drop the gradients of the pieces."""
        self._reduced.clear()
        for piece in self.pieces:
            piece.grad = None

    def __getstate__(self) -> dict[str, Any]:
        """For copies: as torch's optimizers, without hooks and what schedulers have put around methods."""
        return super().__getstate__() | {name: self.__dict__[name] for name in ITS_OWN}

    def share_state(self) -> None:
        """Make the groups and the state of `optim` this one's too; it has new ones when a state is loaded."""
        inner = self.optim
        self.__setstate__({"defaults": inner.defaults, "state": inner.state, "param_groups": inner.param_groups})


def check_state_dict(state_dict: Any, optimizer: torch.optim.Optimizer) -> None:
    """Check that this is the state dict of an optimizer of this kind.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= state_dict.keys():
        keys = list(state_dict) if isinstance(state_dict, dict) else type(state_dict).__name__
        raise ValueError(f"expected the state_dict() of an optimizer, with 'state' and 'param_groups', but got {keys}")
    own = optimizer.defaults.keys()
    for group in state_dict["param_groups"]:
        others = group.keys() - own - {"params", "param_names", "initial_lr"}  # schedulers add the last
        # Versions of torch differ in options, on one side; another optimizer lacks some, and has others.
        if others and own - group.keys():
            raise ValueError(
                f"expected the state of {type(optimizer).__name__}, whose groups have {sorted(own - group.keys())}, "
                f"but got groups with {sorted(others)}: load it into the optimizer that it was saved from"
            )


def check_optimizer(optimizer_class: type[torch.optim.Optimizer], layout: Layout) -> None:
    """Refuse the optimizers of torch that would compute something else from pieces.

    Raises:
        ValueError: it is one of them.
    """
    if issubclass(optimizer_class, LOOK_AT_EVERYTHING):
        raise ValueError(f"{optimizer_class.__name__} looks at all parameters together: its state cannot be divided")
    if layout == "flat" and issubclass(optimizer_class, LOOK_AT_MATRICES):
        raise ValueError(
            f"{optimizer_class.__name__} looks at whole matrices, and a flat shard may end inside one: take "
            "layout='whole tensors'"
        )
