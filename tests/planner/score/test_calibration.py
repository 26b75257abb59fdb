"""A group is calibrated on one row at most, which then comes out as printed; nothing else is fitted."""

from dataclasses import replace

import pytest

from dtlearn.planner.run import Software
from dtlearn.planner.score.calibration import GROUPS, software_for
from dtlearn.planner.score.entries import PublishedNumber, read_entries
from dtlearn.planner.score.scoring import predict

ENTRIES = {entry.id: entry for entry in read_entries()}
CALIBRATED = {group: known for group, known in GROUPS.items() if known.row}


@pytest.mark.parametrize("group", CALIBRATED)
def test_the_row_comes_out_as_printed(group):
    entry = ENTRIES[CALIBRATED[group].row]
    assert predict(entry).predicted == pytest.approx(entry.expected, rel=0.002)


def test_no_group_has_two_rows():
    groups = [group.partition("/")[0] for group in CALIBRATED]
    assert len(groups) == len(set(groups))
    assert all(ENTRIES[known.row].group == group.partition("/")[0] for group, known in CALIBRATED.items())


def test_an_efficiency_is_an_efficiency():
    for known in GROUPS.values():
        assert 0.5 < known.software.efficiency <= 1
        assert 0 < known.software.net <= 1
        assert known.why


def test_a_systems_own_calibration_comes_first():
    def of(**inputs):
        return software_for(PublishedNumber("x", "", group="megascale", inputs=inputs))

    assert of(system="megascale").tp_hidden > of(system="megatron").tp_hidden
    assert software_for(PublishedNumber("", "", group="another")) == Software()
    assert software_for(PublishedNumber("", "", group="another"), low_precision=True) == replace(
        Software(), low_precision=True
    )


def test_uncalibrated_the_planner_is_still_a_planner(monkeypatch):
    """Without any calibration half of the measured times and rates are met within a third: the physics carries it."""
    for group in list(GROUPS):
        monkeypatch.delitem(GROUPS, group)
    targets = ("throughput.per_gpu", "throughput.iteration_time")
    rows = [predict(entry) for entry in ENTRIES.values() if entry.target in targets and entry.kind == "measured"]
    ratios = sorted(abs(row.predicted / row.entry.expected - 1) for row in rows if row.predicted)
    assert len(ratios) > 20
    assert ratios[len(ratios) // 2] < 1 / 3


def test_old_chips_have_the_systems_of_their_years():
    """ZeRO, 1910.02054, section 10: 38 TFLOP/s on each of 400 V100 with 100 billion parameters; nothing is fitted."""
    inputs = {
        "params": 100e9, "layers": 125, "hidden": 8192, "heads": 64, "mp": 16, "gpus": 400, "microbatch": 32,
        "seq": 1024, "zero_stage": 2, "device": "V100-32GB",
    }  # fmt: skip
    assert predict(PublishedNumber("", "throughput.per_gpu", inputs=inputs)).predicted == pytest.approx(38, rel=0.15)
