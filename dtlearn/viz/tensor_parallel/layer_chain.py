"""A recorded layer as a chain: its operations in order, and between which of them each collective was called.

A place is numbered like the gaps of a fence: place k lies before operation k, so a chain of n operations has the places
0 to n. The backward pass goes through the same chain from its end to its beginning; what it sends at a place stands
opposite to what the forward pass sends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record

from ..zero.traffic_by_stage import sent_by_operation
from .module_runs import BACKWARD, FORWARD, ModuleRun


@dataclass(frozen=True)
class LayerRun:
    """A layer that ran forward and backward once, as one rank saw it.

    Attributes:
        record: of the run, with calls and phases.
        modules: of this rank, from `module_runs`.
        rank: whose modules these are.
    """

    record: Record
    modules: Sequence[ModuleRun]
    rank: int = 0


@dataclass(frozen=True)
class LayerOperation:
    """One module of the chain, or several alike that nothing separates, such as query, key and value.

    Attributes:
        names: the last parts of the modules' names.
        cut: as in `ModuleRun`.
        inputs, outputs: local shapes of the product, in the forward pass.
        module: full name of the first.
    """

    names: tuple[str, ...]
    cut: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    module: str


@dataclass(frozen=True)
class LayerCall:
    """A collective of the layer.

    Attributes:
        op: "all_reduce", "all_gather", "reduce_scatter".
        phase: "forward", "backward", or "" after both.
        place: in the chain; None after both passes.
        sent: bytes that the rank sends, if the collective sends as little as a ring does.
    """

    op: str
    phase: str
    place: int | None
    sent: float


@dataclass(frozen=True)
class LayerChain:
    """What a rank did in one forward and one backward pass.

    Attributes:
        operations: in the order of the forward pass.
        calls: in the order of time.
    """

    operations: tuple[LayerOperation, ...]
    calls: tuple[LayerCall, ...]

    def at(self, place: int, phase: str) -> list[LayerCall]:
        """The calls of one pass at one place."""
        return [call for call in self.calls if (call.place, call.phase) == (place, phase)]

    def during(self, phase: str) -> list[LayerCall]:
        """The calls of one pass; "" for those after both."""
        return [call for call in self.calls if call.phase == phase]


def layer_chain(run: LayerRun) -> LayerChain:
    """Put the calls of a rank in their places.

    A call between two modules has its place there. Inside a module a gather comes before the product that needs what it
    gathers, and a reduction after the product whose partial results it adds up.

    Raises:
        ValueError: no module, or one that did not run exactly once forward and once backward.
    """
    forward = sorted((m for m in run.modules if m.phase == FORWARD), key=lambda m: m.start_ns)
    backward = sorted((m for m in run.modules if m.phase == BACKWARD), key=lambda m: m.start_ns)
    names = [m.module for m in forward]
    if not names or len(set(names)) < len(names) or sorted(names) != sorted(m.module for m in backward):
        raise ValueError(
            "each module must have run once forward and once backward, with an input that requires a gradient; got "
            f"forward {names}, backward {[m.module for m in backward]}"
        )
    calls = []
    for event in run.record.select(rank=run.rank):
        if event.nbytes and (event.phase in (FORWARD, BACKWARD) or event.start_ns > backward[-1].end_ns):
            passes = {FORWARD: forward, BACKWARD: backward}.get(event.phase)
            ((op, sent),) = sent_by_operation(replace(run.record, events=(event,), spans=()), run.rank).items()
            place = None if passes is None else _place(event, op, passes, names)
            calls.append(LayerCall(op, "" if passes is None else event.phase, place, sent))
    return _merged(LayerChain(tuple(map(_operation, forward)), tuple(calls)))


def _place(event: Event, op: str, passes: Sequence[ModuleRun], names: Sequence[str]) -> int:
    """Between which operations a call of one pass was made."""
    forward = event.phase == FORWARD
    module = next((m for m in passes if m.start_ns <= event.start_ns <= m.end_ns), None)
    if module is None:
        following = next((names.index(m.module) for m in passes if m.start_ns > event.start_ns), None)
        if forward:
            return len(names) if following is None else following
        return 0 if following is None else following + 1
    before, after = names.index(module.module), names.index(module.module) + 1
    if op != "all_gather":  # a reduction of results: of outputs forward, of gradients of inputs backward
        return after if forward else before
    if forward:  # a gather of the input, or of the output
        return before if event.nbytes == module.input_bytes else after
    # Backward a row-parallel module gathers the gradient of its output, a column-parallel one its input once more.
    return after if module.cut == "row-parallel" else before


def _operation(run: ModuleRun) -> LayerOperation:
    """The module's product alone: a collective inside the module, drawn beside it, may change the number of tokens."""
    inputs, outputs = run.inputs, run.outputs
    if run.cut == "column-parallel":
        inputs = (*outputs[:-1], inputs[-1])
    elif run.cut == "row-parallel":
        outputs = (*inputs[:-1], outputs[-1])
    return LayerOperation((run.module.rpartition(".")[2],), run.cut, inputs, outputs, run.module)


def _merged(chain: LayerChain) -> LayerChain:
    """The same chain with one operation for neighbours that are alike and have no call between them."""
    operations: list[LayerOperation] = []
    places: list[int] = []  # the new number of each old place
    for number, operation in enumerate(chain.operations):
        last = operations[-1] if operations else None
        silent = not any(call.place == number for call in chain.calls)
        places.append(len(operations))
        if last and silent and replace(operation, names=last.names, module=last.module) == last:
            operations[-1] = replace(last, names=last.names + operation.names)
        else:
            operations.append(operation)
    places.append(len(operations))
    calls = (replace(c, place=None if c.place is None else places[c.place]) for c in chain.calls)
    return LayerChain(tuple(operations), tuple(calls))
