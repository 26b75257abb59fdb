"""The variants compute one update, and their bytes and operations are what each of them says."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dtlearn.memory.saving.variants import (
    PLAIN,
    VARIANTS,
    GPTWorkload,
    count_forward_operations,
    count_operations,
    measure_variants,
    record_variant,
    variant_step,
)
from dtlearn.models import GPT, GPTConfig, max_difference, snapshot_parameters

SMALL = GPTWorkload(GPTConfig(vocab_size=32, context_length=16, num_layers=4, num_heads=2, hidden_size=32), batch=8)


@pytest.fixture(scope="module")
def results():
    """All variants, measured on a rank."""
    return {result.name: result for result in measure_variants(SMALL, 1)}


@pytest.fixture(scope="module")
def records(results):
    return {name: result.record for name, result in results.items()}


@pytest.fixture(scope="module")
def plain():
    return trained(PLAIN)


def trained(name):
    torch.manual_seed(0)
    model, variant = GPT(SMALL.config), VARIANTS[name]
    optimizer = variant.optimizer(model)
    for _ in range(2):
        tokens = torch.randint(32, (8, 17))
        variant_step(variant, model, optimizer, (tokens[:, :-1], tokens[:, 1:]))
    return snapshot_parameters(model)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != PLAIN])
def test_every_variant_is_the_same_step(name, plain):
    difference = max_difference(trained(name), plain).value
    assert difference == 0.0 if VARIANTS[name].num_microbatches == 1 else difference < 1e-3  # AdamW at gradients near 0


def test_the_small_ones_are_small(records):
    activations = {name: record.peak.by_category["activations"] for name, record in records.items()}
    plain = activations[PLAIN]
    assert plain / 4 <= activations["4 micro-batches"] < plain / 3.9
    assert activations["checkpoint every block"] < activations["checkpoint every 2 blocks"] < plain / 1.5
    assert activations["checkpoint every block"] < activations["selective"] < plain
    assert activations["offload"] < 0.01 * plain  # what one operation needs is a temporary
    peaks = {name: record.peak.bytes for name, record in records.items()}
    assert max(peaks.values()) == peaks[PLAIN]
    assert peaks["checkpoint, 4 micro-batches"] == min(peaks.values())
    assert peaks["checkpoint, optimizer in backward"] < peaks["checkpoint every block"]


def test_between_steps_all_hold_the_same(records):
    state = {
        name: {category: record.live(category)[-1] for category in ("parameters", "optimizer state", "gradients")}
        for name, record in records.items()
    }
    parameters = 4 * SMALL.config.num_parameters
    assert all(held["parameters"] == parameters and held["gradients"] == 0 for held in state.values())
    assert len({held["optimizer state"] for held in state.values()}) == 1
    for record in records.values():
        assert record.live()[0] == record.live()[-1]


def test_phases(records):
    names = ["forward", "backward", "optimizer step", "zero_grad"]
    assert [phase.name for phase in records[PLAIN].phases] == names
    assert [phase.name for phase in records["4 micro-batches"].phases] == names[:2] * 4 + names[2:]


def test_only_recomputation_computes_more(results):
    forward = count_forward_operations(SMALL)
    assert 2.5 * forward < count_operations(VARIANTS[PLAIN], SMALL) < 3.5 * forward  # backward: twice the forward pass
    for name, result in results.items():
        if "checkpoint" in name:
            assert 0.9 < result.extra_forward < 1.0  # all but the head
        else:
            assert result.extra_forward == 0.0  # selective: no matrix product is computed again


@pytest.mark.parametrize("name", [PLAIN, "checkpoint every 2 blocks"])
def test_operations_are_those_of_torchs_counter(name):
    torch.manual_seed(0)
    model = GPT(SMALL.config)
    with FlopCounterMode(display=False) as counter:
        variant_step(
            VARIANTS[name], model, VARIANTS[name].optimizer(model), (torch.zeros(8, 16, dtype=torch.long),) * 2
        )
    assert count_operations(VARIANTS[name], SMALL) == counter.get_total_flops()


def test_only_offload_needs_the_host(results):
    assert {name for name, result in results.items() if result.host_peak} == {"offload", "checkpoint and offload"}
    saved = results[PLAIN].activations_at_peak
    assert 0.9 * saved < results["offload"].host_peak < 1.5 * saved  # some tensors are saved twice


def test_measured_on_a_rank(results):
    assert list(results) == list(VARIANTS)
    assert all(len(result.seconds) == 1 and result.seconds[0] > 0 < result.ratio for result in results.values())
    plain = results[PLAIN]
    assert plain.ratio == 1.0
    assert plain.peak == record_variant(VARIANTS[PLAIN], SMALL).peak.bytes > plain.activations_at_peak > 0
