"""ch06.fifo_makespan: a step is limited by its gradients, by its link, and now by one, now by the other."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Per case: the arguments.
CASES: dict[str, dict[str, Any]] = {
    "one layer": {"backward": [2.0], "transfer": [3.0], "forward": [1.0]},
    "gradients come slowly": {
        "says": "no transfer starts before its gradient is ready: the link waits",
        "backward": [4.0, 3.0, 2.0],
        "transfer": [1.0, 1.5, 1.0],
        "forward": [2.0, 1.0, 3.0],
    },
    "the link is slow": {
        "says": "no transfer starts before the one before it has ended: gradients wait",
        "backward": [1.0, 2.0, 1.0],
        "transfer": [3.0, 4.0, 5.0],
        "forward": [1.0, 1.0, 2.0],
    },
    "one large layer between small ones": {
        "says": "now the link waits for a gradient, now a gradient for the link: decide it anew for each transfer",
        "backward": [2.0, 2.0, 2.0, 2.0],
        "transfer": [1.0, 6.0, 1.5, 1.0],
        "forward": [1.0, 1.0, 3.0, 1.0],
    },
    "a layer with nothing to send": {
        "says": "a layer that sends nothing computes nevertheless, and all others are sent as before",
        "backward": [1.0, 2.0, 3.0, 1.0],
        "transfer": [2.0, 2.0, 0.0, 3.0],
        "forward": [2.0, 1.0, 2.0, 1.0],
    },
    "layer 0 has nothing to send": {
        "says": "forward begins when backward has ended, although nothing is sent any more; times may have fractions",
        "backward": [2.25, 1.0, 1.5],
        "transfer": [0.0, 0.5, 1.0],
        "forward": [1.0, 0.5, 1.0],
    },
}
LAYERS, READY = "reversed(range(len(backward)))", "ready += backward[layer]"
FREE, RETURN = "free = max(ready, free) + transfer[layer]", "return free + sum(forward)"
EDITS = (
    Edit("backward runs from layer 0 to the last one: it begins with the last layer", {LAYERS: "range(len(backward))"}),
    Edit("all transfers are counted from the beginning of backward: none starts before its gradient is ready",
         {FREE: "free += transfer[layer]", RETURN: "return max(ready, free) + sum(forward)"}),
    Edit("once the first transfer has started, the others follow without a gap: each has to wait for its own gradient",
         {FREE: "free = (free or ready) + transfer[layer]", RETURN: "return max(ready, free) + sum(forward)"}),
    Edit("a transfer may end when its gradient becomes ready: it can only start then",
         {FREE: "free = max(ready, free + transfer[layer])"}),
    Edit("each transfer starts when its gradient is ready, while another one is under way: the link sends one at a "
         "time", {FREE: "free = max(free, ready + transfer[layer])"}),
    Edit("nothing overlaps: transfers start when all of backward has ended, or backward waits for each of them; they "
         "run beside it", {FREE: "free = max(sum(backward), free) + transfer[layer]"}),
    Edit("the forward pass does not wait for the gradients", {RETURN: "return ready + sum(forward)"}),
    Edit("the forward pass is not counted", {RETURN: "return free"}),
    Edit("the time is counted from the end of backward: it begins with backward",
         {RETURN: "return free - ready + sum(forward)"}),
    Edit("the time ends with the forward pass of layer 0: it ends with that of the last layer",
         {RETURN: "return free + forward[0]"}),
    Edit("all layers compute forward at the same time: one follows the other",
         {RETURN: "return free + max(forward)"}),
    Edit("the longer one of two extremes is returned, a link that never waits and gradients that never wait: between "
         "them each transfer decides anew", {FREE: "free += transfer[layer]",
          RETURN: "return max(ready + transfer[0], free + backward[-1]) + sum(forward)"}),
    Edit("the longer one of computation and transfers is returned: this is what no order can go below, and FIFO takes "
         "longer", {FREE: "free += transfer[layer]", RETURN: "return max(ready + sum(forward), free)"}),
    Edit("of a layer that has nothing to send the backward pass is left out: it is computed nevertheless",
         {READY: "ready += backward[layer] if transfer[layer] else 0"}),
    Edit("forward begins when the last transfer has ended, while backward still computes layers with nothing to send",
         {FREE: "free = max(ready, free) + transfer[layer] if transfer[layer] else free"}),
    Edit("seconds are rounded to whole ones: they may have fractions", {RETURN: "return round(free + sum(forward))"}),
    Edit("a transfer of 0 seconds ends the sending: the layers below it have gradients to send as well",
         {FREE: "free = max(ready, free) + transfer[layer] * all(transfer[layer:])"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [{name: case.params[name] for name in ("backward", "transfer", "forward")}] * case.world_size


def on_rank(answer: Any, backward: Any, transfer: Any, forward: Any) -> Any:
    return answer(backward, transfer, forward)


def expected(case: Case, given: Given) -> list[float]:
    """The longest chain: backward down to a layer, the transfers from it on to layer 0, and forward."""
    backward, transfer, forward = given[0].values()
    chains = [sum(backward[layer:]) + sum(transfer[: layer + 1]) for layer in range(len(backward))]
    return [max(chains) + sum(forward)] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the arguments of the call."""
    return f"{MAY_HELP}it was called with {', '.join(f'{name} = {value}' for name, value in given[0].items())}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"backward": [1.0, 2.0, 1.0], "transfer": [1.0, 3.0, 2.0], "forward": [1.0, 1.0, 1.0]}],
    why=why,
    rules=[rules.most_messages("0")],
)
