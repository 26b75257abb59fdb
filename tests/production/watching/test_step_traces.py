"""Two traces of one step: what each has, and that they are of the same step."""

import json

import pytest

from dtlearn.models import GPTConfig
from dtlearn.production.watching.step_traces import collectives, operator_seconds, slices, trace_step

CONFIG = GPTConfig(num_layers=1, num_heads=2, hidden_size=16, context_length=8)


@pytest.fixture(scope="module")
def traces():
    return trace_step(2, CONFIG, batch=2, device="cpu")


def test_each_sees_what_the_other_does_not(traces):
    seen = {sight.what: (sight.profiler, sight.record) for sight in traces.sights()}
    assert seen.pop("operators, such as aten::addmm")[0] > 100
    assert seen == {
        "kernels on a GPU": (0, 0),
        "phases: forward, backward, step": (2, 6),
        "collectives": (2, 2),
        "collectives with the size of their data": (2, 2),
        "collectives with the line that called (without with_stack)": (0, 2),
        "waits for a collective": (0, 2),
        "ranks in one trace": (1, 2),
    }


def test_both_have_the_same_all_reduce(traces):
    """One bucket: all parameters of the model, in float32."""
    (call,) = traces.record.select(rank=1)
    (event,) = collectives(slices(traces.profiler[1]))
    assert (call.op, event["name"]) == ("all_reduce", "gloo:all_reduce")
    assert event["args"]["Input Dims"] == [[CONFIG.num_parameters]]
    assert call.nbytes == 4 * CONFIG.num_parameters


def test_the_profiler_sees_forward_and_backward_products(traces):
    seconds = operator_seconds(traces.profiler[0])
    assert seconds["aten::addmm"] > 0 and seconds["AddmmBackward0"] > 0 and seconds["c10d::allreduce_"] > 0
    assert all("addmm" not in event["name"] for event in slices(traces.course))


def test_files_are_traces(traces, tmp_path):
    files = traces.save(tmp_path)
    assert [file.name for file in files] == ["profiler_rank0.json", "profiler_rank1.json", "course.json"]
    assert all(slices(json.loads(file.read_text())) for file in files)
