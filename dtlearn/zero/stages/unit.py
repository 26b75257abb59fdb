"""A unit of stage 3: the module whose parameters are unsharded, used and resharded together.

The usual unit is a transformer's block. The root unit, the model, has the parameters that lie in no other unit. The
verbs and the four hooks have the names of PyTorch's `FSDPParamGroup`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.utils._pytree import tree_leaves

from dtlearn.sharing.wrapping.module_hooks import guard_forward, outputs_to_watch, watch_inputs

from .passes import Passes
from .sharded_bucket import Reduction, ShardedBucket
from .unsharded_params import as_plain

NOT_ALONE = (
    "a module of a sharded model has one rank's shards, and is neither copied nor pickled by itself: copy the wrapper, "
    "copy.deepcopy(model); save model.full_params(), or sharded_state_dict; or copy and save model.module inside "
    "`with model.unsharded():`, where it is a plain model"
)


class Slot(NamedTuple):
    """A place in the model where a parameter is looked up: attribute `name` of `module` is parameter `number`."""

    module: nn.Module
    name: str
    number: int


class Unit:
    """A module of which this rank keeps shards, and has the whole parameters while they are used.

    **Communication** and **Memory**: those of its buckets, in `unshard` and in `reduce_gradients`.

    Args:
        name: of the module in the model; "" for the root.
        module: the module.
        slots: where its parameters stand. A tied one has several.
        buckets: its parameters; usually one, more if they have several dtypes or some are frozen.

    Attributes:
        is_unsharded: the whole parameters have memory, or it is being filled.
        in_backward: its backward pass has begun and is not over;
        sync: and at its end the gradients are reduced.
        shows_shards: the model has the sharded parameters where it looks parameters up.
        passes: what it shares with the other units; set by `attach`.
        reshard_after_forward: do not keep the parameters from the forward pass to the backward pass; set by `attach`.
    """

    passes: Passes
    reshard_after_forward: bool

    def __init__(self, name: str, module: nn.Module, slots: Sequence[Slot], buckets: Sequence[ShardedBucket]) -> None:
        self.name, self.module, self.slots, self.buckets = name, module, slots, buckets
        self.is_unsharded = self.in_backward = self.sync = False
        self._copies: list[torch.Tensor] = []
        self._standing: dict[int, nn.Parameter] = {}  # what was put into the model, by number
        self._detach: list[Callable[[], object]] = []
        self.to_sharded()
        with as_plain():
            for param in (
                param for bucket in buckets for param in bucket.unsharded_params if param.is_floating_point()
            ):
                trained = param.requires_grad  # what is frozen now may be trained later
                param.requires_grad_(True).register_post_accumulate_grad_hook(self._gradient_has_come)
                param.requires_grad_(trained)

    # The hooks: before and after the forward pass of the module, and where its backward pass begins and ends

    def pre_forward(self, _: nn.Module, inputs: Any, kwargs: Any) -> tuple[Any, Any]:
        """Unshard, and the next units after it."""
        self.passes.forward_reaches(self)
        self.unshard()
        self.wait_for_unshard()
        self.passes.prefetch_in_forward(self)
        if torch.is_grad_enabled():
            inputs, kwargs = watch_inputs(inputs, kwargs, self.post_backward)
            self._watch_gradients_of(inputs, kwargs)
        return inputs, kwargs

    def post_forward(self, _: nn.Module, inputs: Any, outputs: Any) -> Any:
        """Reshard, unless the parameters are kept for the backward pass."""
        if self.in_backward:  # a checkpoint ran it again: `post_backward` will come
            return outputs
        self.to_sharded()
        entries = outputs_to_watch(outputs, self.name or "the model") if torch.is_grad_enabled() else []
        for tensor in entries:
            tensor.register_hook(partial(self.pre_backward, self.passes.sync))
        self.passes.awaits_backward |= bool(entries)
        for unit in self.passes.units if self is self.passes.root else [self]:  # with the root, what was never used
            if unit.reshard_after_forward or not entries:
                unit.reshard()
        self._refuse_views(outputs)
        return outputs

    def pre_backward(self, sync: bool, _: torch.Tensor) -> None:
        """Unshard once more, and the units before it."""
        self.passes.backward_reaches()
        if not self.in_backward:  # this is the first of its outputs
            self.in_backward, self.sync = True, sync
            self.unshard()
            self.wait_for_unshard()
            self.passes.prefetch_in_backward(self)

    def post_backward(self) -> None:
        """Reshard, then reduce the gradients: they are there twice, each by itself and in the vector that is sent."""
        if self.in_backward and not self.passes.second_order:
            self.in_backward = False
            self.reshard()
            if self.sync and self.passes.accumulates:
                self.passes.reduce(self)

    # The verbs

    def unshard(self) -> None:
        """Begin to gather the parameters, unless that was done."""
        if not self.is_unsharded:
            self.is_unsharded = True
            for bucket in self.buckets:
                bucket.unshard()

    def wait_for_unshard(self) -> None:
        """Have the whole parameters in the model, with their values."""
        for bucket in self.buckets:
            bucket.wait_for_unshard()
        self.to_unsharded()

    def reshard(self) -> None:
        """Give the memory back; the model has the sharded parameters."""
        if not self.shows_shards:
            self.to_sharded()
        if self.is_unsharded:
            self.is_unsharded = False
            for bucket in self.buckets:
                bucket.reshard()

    def reduce_gradients(self) -> list[Reduction]:
        """Begin to average the gradients."""
        reductions = [bucket.reduce_gradients() for bucket in self.buckets]
        return [reduction for reduction in reductions if reduction is not None]

    def drop_gradients(self) -> None:
        """Forget full gradients: the backward pass that made them has failed."""
        for bucket in self.buckets:
            bucket.drop_gradients()

    def gets_gradients(self) -> bool:
        """Return whether the backward pass that runs now accumulates the gradient of one of the parameters."""
        with as_plain():
            params = [param for bucket in self.buckets for param in bucket.unsharded_params if param.requires_grad]
            return any(torch._C._will_engine_execute_node(get_gradient_edge(param).node) for param in params)

    # What stands in the model

    def to_unsharded(self) -> None:
        """Put the whole parameters where the model looks parameters up."""
        self._put([bucket.unsharded_params for bucket in self.buckets])
        self.shows_shards = False

    def to_sharded(self) -> None:
        """Put the sharded parameters there."""
        self._put([bucket.sharded_params for bucket in self.buckets])
        self.shows_shards = True

    def to_copies(self) -> None:
        """Put parameters there that are for reading and writing: in full precision, and not what autograd has saved."""
        self._copies = [bucket.gather_copy() for bucket in self.buckets]
        self._put([bucket.params_in(copy) for bucket, copy in zip(self.buckets, self._copies, strict=True)])

    def take_copies(self) -> None:
        """Keep what was changed in them, and put the sharded parameters back."""
        for bucket, copy in zip(self.buckets, self._copies, strict=True):
            bucket.set_from(copy)
        self._copies = []
        self.to_sharded()

    def _put(self, parameters: Sequence[Sequence[nn.Parameter]]) -> None:
        by_number = dict[int, nn.Parameter]()
        for bucket, members in zip(self.buckets, parameters, strict=True):
            by_number.update(zip(bucket.bucket.parameters, members, strict=True))
            with as_plain():
                for param, sharded in zip(members, bucket.sharded_params, strict=True):
                    param.requires_grad_(sharded.requires_grad)  # it may have been frozen since
        for module, name, number in self.slots:
            if self._standing and module._parameters.get(name) is not self._standing[number]:
                raise RuntimeError(
                    f"{name} of {type(module).__name__} was replaced since the model was sharded, and no rank would "
                    "gather it. Change the model before it is sharded; call it with other parameters, by "
                    "functional_call, inside `with model.unsharded():`, where it is a plain model"
                )
            module._parameters[name] = by_number[number]
        self._standing = by_number

    # What is attached to the modules

    def attach(self, passes: Passes, reshard_after_forward: bool) -> None:
        """Register the hooks, and guard the modules' `forward`, which hooks miss."""
        self.passes, self.reshard_after_forward = passes, reshard_after_forward
        before = self.module.register_forward_pre_hook(self.pre_forward, prepend=True, with_kwargs=True)
        after = self.module.register_forward_hook(self.post_forward, always_call=True)
        self._detach = [before.remove, after.remove]
        for module in {slot.module: None for slot in self.slots}:
            own = module.__dict__.get("forward")
            guard_forward(module, self._require_unsharded, of_copies=refuse_shards)
            self._detach.append(partial(_unguard, module, module.__dict__["forward"], own))

    def detach(self) -> None:
        """Take hooks and guards away: the module is a plain one."""
        for undo in self._detach:
            undo()
        self._detach = []

    def twin(self, memo: dict[int, Any]) -> Unit:
        """The unit of a copy of the model, for which `copy.deepcopy` has filled `memo`."""
        slots = [Slot(memo[id(module)], name, number) for module, name, number in self.slots]
        buckets = [bucket.twin([memo[id(param)] for param in bucket.sharded_params]) for bucket in self.buckets]
        return Unit(self.name, memo[id(self.module)], slots, buckets)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError(NOT_ALONE)

    def __reduce__(self) -> NoReturn:
        raise TypeError(NOT_ALONE)

    def _require_unsharded(self, module: nn.Module) -> None:
        if self.shows_shards:
            refuse_shards(module)

    # Who else would read freed memory

    def _refuse_views(self, outputs: Any) -> None:
        own = {bucket.unsharded.untyped_storage()._cdata for bucket in self.buckets}
        tensors = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        if not self.is_unsharded and any(tensor.untyped_storage()._cdata in own for tensor in tensors):
            raise RuntimeError(
                f"{self.name or 'the model'} returned a parameter, or a view of one, whose memory is freed now: return "
                "a copy, .clone()"
            )

    def _gradient_has_come(self, _: torch.Tensor) -> None:
        if not self.in_backward:  # by a tensor from inside the module, or after its backward pass: reduce it at the end
            self.in_backward, self.sync = True, self.passes.sync
            self.passes.backward_reaches()

    def _watch_gradients_of(self, inputs: Any, kwargs: Any) -> None:
        """Watch these gradients: with `create_graph=True` they have a graph that reads the parameters, entered here."""
        for tensor in (*inputs, *kwargs.values()):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(partial(self._gradient_comes, self.passes.sync))

    def _gradient_comes(self, sync: bool, gradient: torch.Tensor) -> None:
        if gradient.requires_grad:
            gradient.register_hook(partial(self._pre_second_backward, sync))

    def _pre_second_backward(self, sync: bool, gradient: torch.Tensor) -> None:
        self.passes.second_order = True  # all units that it reaches stay unsharded to its end
        self.pre_backward(sync, gradient)


def refuse_shards(module: nn.Module) -> NoReturn:
    """Say that a module, or a copy of it, has one rank's shards and cannot compute."""
    raise RuntimeError(
        f"the parameters of {type(module).__name__} are in shards here. They are gathered by a call of the model, "
        "model(...): not by model.forward(...), and not by a call of a part of it, or of a copy of a part. To look at "
        "them or to use a part, open model.unsharded()"
    )


def _unguard(module: nn.Module, guarded: object, own: Callable[..., Any] | None) -> None:
    """Undo `guard_forward`, unless somebody has replaced the guarded function since."""
    if module.__dict__.get("forward") is guarded:
        del module.forward
        if own is not None:
            module.forward = own
