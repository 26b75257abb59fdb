"""A record of storages, made by hand: what lives when, and who made the peak."""

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from dtlearn.memory import CATEGORIES, Allocation, MemoryRecord, Phase
from dtlearn.memory.ledger import record


def storage(number, category, module, made, gone=None, phase=""):
    return Allocation(number, category, module, "aten::mm", "train.py:3", phase, made, gone)


# tick          0    1    2    3    4    5    6    7
# weight       100  100  100  100  100  100  100  100
# activation         40   40   40   40   40    .    .     made by layer.0 in the forward pass
# output                  30   30   30    .    .    .     made by layer.1
# gradient                     100  100  100  100  100    made in the backward pass
# temporary                          5    5    5    .
WEIGHT = storage(100, "parameters", "layer.0", 0)
ACTIVATION = storage(40, "activations", "layer.0", 1, 6, "forward")
OUTPUT = storage(30, "temporaries", "layer.1", 2, 5, "forward")
GRADIENT = storage(100, "gradients", "layer.0", 3, None, "backward")
TEMPORARY = storage(5, "temporaries", "", 4, 7, "backward")
RECORD = MemoryRecord(
    (WEIGHT, ACTIVATION, OUTPUT, GRADIENT, TEMPORARY),
    (Phase("forward", 0, 2), Phase("backward", 2, 7)),
    7,
)


def test_what_lives_after_each_tick():
    assert RECORD.live() == [100, 140, 170, 270, 275, 245, 205, 200]
    assert RECORD.live("temporaries") == [0, 0, 30, 30, 35, 5, 5, 0]
    assert RECORD.live(module="layer.1") == [0, 0, 30, 30, 30, 0, 0, 0]
    assert RECORD.live(module="layer") == [100, 140, 170, 270, 270, 240, 200, 200]  # and what is inside it
    assert RECORD.live(module="") == [0, 0, 0, 0, 5, 5, 5, 0]
    assert RECORD.live("activations", "layer.1") == [0] * 8
    assert RECORD.live(module="lay") == [0] * 8  # the beginning of a name is not a module


def test_the_timeline_adds_up():
    timeline = RECORD.timeline()
    assert tuple(timeline) == CATEGORIES
    assert [sum(numbers) for numbers in zip(*timeline.values(), strict=True)] == RECORD.live()


def test_at_a_tick():
    assert RECORD.at(0) == (WEIGHT,)
    assert RECORD.at(5) == (WEIGHT, ACTIVATION, GRADIENT, TEMPORARY)
    for tick, number in enumerate(RECORD.live()):
        assert sum(allocation.bytes for allocation in RECORD.at(tick)) == number
    with pytest.raises(ValueError, match="0 to 7"):
        RECORD.at(8)


def test_the_peak():
    peak = RECORD.peak
    assert (peak.at, peak.bytes, peak.phase) == (4, 275, "backward")
    assert peak.owner == GRADIENT  # the weight is as large, and the phase did not make it
    assert tuple(peak.by_category) == CATEGORIES
    assert {name: number for name, number in peak.by_category.items() if number} == {
        "parameters": 100,
        "gradients": 100,
        "activations": 40,
        "temporaries": 35,
    }
    assert list(peak.by_module.items()) == [("layer.0", 240), ("layer.1", 30), ("", 5)]


def test_the_first_of_equal_peaks_counts_and_its_largest_storage():
    up_and_down = (storage(8, "inputs", "", 1, 2), storage(8, "inputs", "", 3))
    peak = MemoryRecord(up_and_down, (), 3).peak
    assert (peak.at, peak.phase, peak.owner) == (1, "", up_and_down[0])
    together = (storage(8, "inputs", "", 1), storage(8, "inputs", "", 2), storage(4, "inputs", "", 3))
    assert MemoryRecord(together, (), 3).peak.owner == together[1]


def test_a_peak_before_anything_was_made():
    peak = MemoryRecord((storage(8, "parameters", "", 0, 1),), (), 1).peak
    assert (peak.at, peak.bytes, peak.owner.made) == (0, 8, 0)
    nothing = MemoryRecord((), (), 0).peak
    assert (nothing.at, nothing.bytes, nothing.owner, nothing.by_module) == (0, 0, None, {})


def test_phases_in_each_other():
    inner = MemoryRecord((), (Phase("step", 0, 4), Phase("backward", 1, 3), Phase("step", 4, 5)), 6)
    assert [inner.phase_at(tick) for tick in range(7)] == ["", "step", "backward", "backward", "step", "step", ""]


def test_an_unknown_category():
    with pytest.raises(ValueError, match=r"no category 'weights': take one of parameters, gradients"):
        RECORD.live("weights")


def test_it_travels():
    assert pickle.loads(pickle.dumps(RECORD)) == RECORD


def test_it_needs_no_torch():
    code = (
        "import sys, importlib.util as u\n"
        "spec = u.spec_from_file_location('record', sys.argv[1])\n"
        "module = sys.modules['record'] = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, record.__file__], check=True)


def test_the_part_inside_a_phase():
    part = RECORD.inside("backward")
    assert part.live() == RECORD.live()[2:]
    assert (part.phases, part.clock) == ((), 5)
    assert [(a.made, a.gone, a.phase) for a in part.allocations] == [
        (0, None, ""),
        (0, 4, ""),
        (0, 3, ""),
        (1, None, ""),
        (2, 5, ""),
    ]
    first = RECORD.inside("forward")
    assert first.live() == RECORD.live()[:3] and [a.gone for a in first.allocations] == [None] * 3
    with pytest.raises(ValueError, match="no phase 'step': this record has forward, backward"):
        RECORD.inside("step")


def test_phases_inside_the_last_one_of_a_name():
    phases = (
        Phase("step", 0, 2),
        Phase("forward", 0, 1),
        Phase("step", 2, 5),
        Phase("forward", 2, 3),
        Phase("b", 3, 5),
    )
    assert MemoryRecord((), phases, 5).inside("step").phases == (Phase("forward", 0, 1), Phase("b", 1, 3))


def test_one_device():
    both = (replace(WEIGHT, device="cuda:0"), ACTIVATION)
    record = MemoryRecord(both, RECORD.phases, 7)
    assert record.on("cuda").allocations == record.on("cuda:0").allocations == both[:1]
    assert record.on("cpu").allocations == both[1:] and record.on("cuda:1").allocations == ()
