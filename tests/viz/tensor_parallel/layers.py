"""A layer in miniature: a norm, a column-parallel and a row-parallel product, as two ranks would hold and run them."""

from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import merge
from dtlearn.viz.tensor_parallel.layer_chain import LayerRun
from dtlearn.viz.tensor_parallel.local_weights import LocalWeight
from dtlearn.viz.tensor_parallel.module_runs import ModuleRun

MODULES = (
    ("norm", "", (2, 4, 8), (2, 4, 8)),
    ("attention.query", "column-parallel", (2, 4, 8), (2, 4, 4)),
    ("attention.key", "column-parallel", (2, 4, 8), (2, 4, 4)),
    ("attention.output", "row-parallel", (2, 4, 4), (2, 4, 8)),
)
WEIGHTS = [
    LocalWeight("table.weight", (8, 4), 0, is_table=True),
    LocalWeight("attention.query.weight", (4, 8), 0, head_size=2),
    LocalWeight("attention.query.bias", (4,), 0, head_size=2),
    LocalWeight("attention.output.weight", (8, 4), 1, head_size=2),
    LocalWeight("attention.output.bias", (8,), None),
    LocalWeight("norm.weight", (8,), None),
]


def module_passes(tokens=4):
    """Forward: module k runs from 10 k to 10 k + 8 ns. Backward the other way round, from 100 ns on."""
    forward, backward = [], []
    for number, (name, cut, inputs, outputs) in enumerate(MODULES):
        shapes = ((2, tokens, 8) if inputs[-1] == 8 else inputs, outputs)
        place = len(MODULES) - 1 - number
        nbytes = 4 * shapes[0][0] * shapes[0][1] * shapes[0][2]
        forward.append(ModuleRun(name, cut, "forward", 10 * number, 10 * number + 8, *shapes, nbytes))
        backward.append(ModuleRun(name, cut, "backward", 100 + 10 * place, 108 + 10 * place, *shapes, nbytes))
    return [*forward, *reversed(backward)]


def call(seq, op, start, phase, nbytes=256, rank=0):
    return Event(
        rank,
        seq,
        op,
        "world",
        seq,
        nbytes,
        "float32",
        (64,),
        None,
        {},
        start,
        start + 1,
        False,
        "f.py",
        1,
        "",
        None,
        phase,
    )


def layer_run(*calls, world_size=2, tokens=4):
    """What rank 0 did; of the other ranks nothing is recorded."""
    return LayerRun(merge(world_size, [list(calls)], "gloo on CPU"), module_passes(tokens))


def tensor_parallel_run():
    """The forward pass reduces the output, the backward pass the gradient of what query and key take."""
    return layer_run(
        call(0, "all_reduce", 35, "forward"),
        call(1, "all_reduce", 129, "backward"),
    )


def sequence_parallel_run():
    """The gradient of the output is gathered inside its module, that of the input reduced between two modules."""
    return layer_run(
        call(0, "all_gather_into_tensor", 9, "forward", 128),
        call(1, "reduce_scatter_tensor", 35, "forward"),
        call(2, "all_gather_into_tensor", 101, "backward", 128),
        call(3, "reduce_scatter_tensor", 129, "backward"),
        call(4, "all_reduce", 150, "", 64),
    )
