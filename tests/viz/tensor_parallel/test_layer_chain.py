from dataclasses import replace

import pytest

from dtlearn.viz.tensor_parallel.layer_chain import layer_chain
from tests.viz.tensor_parallel.layers import call, layer_run, sequence_parallel_run, tensor_parallel_run


def test_calls_stand_between_the_operations():
    chain = layer_chain(tensor_parallel_run())
    assert [operation.names for operation in chain.operations] == [("norm",), ("query", "key"), ("output",)]
    assert [(c.op, c.phase, c.place, c.sent) for c in chain.calls] == [
        ("all_reduce", "forward", 3, 256),
        ("all_reduce", "backward", 1, 256),
    ]
    assert [c.phase for c in chain.at(1, "backward")] == ["backward"]
    assert not chain.at(1, "forward")


def test_an_all_reduce_sends_as_much_as_its_two_halves():
    calls = layer_chain(sequence_parallel_run()).calls
    assert [(c.op, c.phase, c.place, c.sent) for c in calls] == [
        ("all_gather", "forward", 1, 128),
        ("reduce_scatter", "forward", 3, 128),
        ("all_gather", "backward", 3, 128),
        ("reduce_scatter", "backward", 1, 128),
        ("all_reduce", "", None, 64),
    ]


def test_shapes_are_those_of_the_products():
    """The modules take and return a rank's own tokens; between the collectives that they call, there are all."""
    run = sequence_parallel_run()
    own = [replace(m, inputs=(2, 2, 8) if m.cut == "column-parallel" else m.inputs) for m in run.modules]
    own = [replace(m, outputs=(2, 2, 8) if m.cut == "row-parallel" else m.outputs) for m in own]
    query, output = layer_chain(replace(run, modules=own)).operations[1:]
    assert (query.inputs, query.outputs) == ((2, 4, 8), (2, 4, 4))
    assert (output.inputs, output.outputs) == ((2, 4, 4), (2, 4, 8))


@pytest.mark.parametrize(
    ("op", "start", "phase", "nbytes", "place"),
    [
        ("all_reduce", 0, "forward", 256, 1),  # a sum of what the norm returned
        ("all_gather_into_tensor", 11, "forward", 256, 1),  # query gathers its input
        ("all_gather_into_tensor", 11, "forward", 64, 2),  # query gathers its output
        ("reduce_scatter_tensor", 125, "backward", 256, 1),  # the gradient of query's input
        ("all_gather_into_tensor", 125, "backward", 256, 1),  # query's input once more
        ("all_reduce", 99, "backward", 256, 4),  # before the backward pass of the last module
        ("all_reduce", 139, "backward", 256, 0),  # after that of the first
        ("all_reduce", 39, "forward", 256, 4),
    ],
)
def test_places(op, start, phase, nbytes, place):
    """Without merging, the chain has four operations and five places; a call separates query from key."""
    chain = layer_chain(layer_run(call(0, op, start, phase, nbytes), call(1, "all_reduce", 19, "forward")))
    assert chain.calls[0].place == place
    assert [operation.names for operation in chain.operations] == [("norm",), ("query",), ("key",), ("output",)]


def test_calls_of_other_ranks_and_those_before_the_layer_do_not_count():
    run = layer_run(call(0, "broadcast", -5, "", 8), call(1, "barrier", 5, "forward", 0))
    assert layer_chain(run).calls == ()


def test_one_pass_each_way_is_needed():
    run = tensor_parallel_run()
    with pytest.raises(ValueError, match="once forward and once backward"):
        layer_chain(replace(run, modules=[m for m in run.modules if m.phase == "forward"]))
    with pytest.raises(ValueError, match="once forward and once backward"):
        layer_chain(replace(run, modules=[*run.modules, *run.modules]))
    with pytest.raises(ValueError, match="once forward and once backward"):
        layer_chain(replace(run, modules=[]))
