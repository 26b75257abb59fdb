"""Inputs under any name, in a description, or missing: what is assumed is said."""

import pytest

from dtlearn.planner.score.entries import CannotPredict, PublishedNumber
from dtlearn.planner.score.inputs import Reader, read_run, usual_heads


def run_of(**inputs):
    return read_run(PublishedNumber("an entry", "throughput.per_gpu", inputs=inputs))


def test_names_do_not_matter():
    long, _ = run_of(hidden=4096, layers=32, heads=32, vocab=50000, seq=2048, gpus=64, tp=2, pp=2, global_batch=64)
    short, _ = run_of(h=4096, L=32, a=32, V=50000, s=2048, n=64, t=2, p=2, B=64)
    assert long == short
    assert long.axes.dp == 16


def test_a_description_is_read():
    """As torchtitan's tables are described."""
    run, _ = run_of(description="Table4 70B FSDP32 TP8 lbs16 fullAC fp8", device="H100 96GB HBM2e, 500W")
    assert run.model.name == "Llama 3 70B"
    assert (run.axes.tp, run.axes.dp, run.cluster.size, run.zero_stage) == (8, 32, 256, 3)
    assert (run.microbatch, run.recompute, run.software.low_precision) == (16, "full", True)
    assert run.cluster.chip.name == "H100-96GB"


def test_a_pipelines_local_batch_is_cut_into_micro_batches():
    run, _ = run_of(description="405B FSDP8 TP8 PP8 lbs32 fullAC", device="H100")
    assert (run.microbatch, run.num_microbatches, run.batch) == (4, 8, 256)


def test_what_is_missing_is_assumed_and_said():
    run, assumed = run_of(params=175e9, gpus=512, tp=8, pp=8)
    assert run.model.name in ("GPT-3 175B", "OPT 175B", "BLOOM 176B")
    said = " ".join(assumed)
    for word in ("device A100", "sequence length 2048", "batch", "micro-batch", "recomputation"):
        assert word in said


def test_a_world_that_contradicts_itself_is_mended_and_said():
    """Llama 3's table 4 in its first version: 8 x 16 x 16 x 4 is not 16,384."""
    run, assumed = run_of(params=405e9, gpus=16384, tp=8, cp=16, pp=16, dp=4, seq=131072, batch_per_dp=16)
    assert run.axes.dp == 8
    assert any("does not multiply to 16384" in text for text in assumed)


def test_a_peak_names_a_chip_and_replaces_its_own():
    run, _ = run_of(params=7e9, gpus=8, peak_tflops=989.4)
    assert run.cluster.chip.name == "H100-80GB"
    assert run.cluster.chip.peak == 989.4e12
    assert run_of(params=7e9, gpus=8, device="V100")[0].cluster.chip.name == "V100-32GB"


def test_an_unknown_chip_with_a_peak_is_the_nearest_one_with_that_peak():
    run, assumed = run_of(params=7e9, gpus=8, device="Abacus", peak_tflops=400)
    assert run.cluster.chip.peak == 400e12
    assert any("A100" in text for text in assumed)


def test_heads_divide_the_hidden_size():
    assert usual_heads(12288) == 96
    assert all(hidden % usual_heads(hidden) == 0 for hidden in (14400, 13824, 1600, 2304, 7, 4257))


def test_without_a_model_nothing_is_predicted():
    with pytest.raises(CannotPredict, match="name no model"):
        run_of(gpus=8)
    with pytest.raises(ValueError, match="unknown GPU 'Abacus'"):
        run_of(params=7e9, device="Abacus")


@pytest.mark.parametrize("value", [None, True, float("nan"), float("inf"), "many", [3]])
def test_what_is_no_number_is_as_if_it_were_missing(value):
    assert Reader(PublishedNumber("", "", inputs={"tp": value})).number("tp", 4.0) == 4.0
