"""The naive mixes go wrong as they are said to, and the recipe does not."""

import math

import pytest
import torch
import torch.distributed as dist

from dtlearn.hybrid_parallel import MeshLayout, NormOverWrongGroups
from tests.devices import run_ranks
from tests.hybrid_parallel.runs import LAYOUTS, OPTIMIZERS, batches, config, float64, in_one_process


def norms(layout, axes):
    """The norm of the first step on this rank, and the rank's coordinates."""
    optimizer_class, options = OPTIMIZERS["sgd"]
    with float64():
        model = NormOverWrongGroups(
            config(), layout, axes=axes, optimizer_class=optimizer_class, max_norm=0.5, **options
        )
        step = model.step(*next(batches(1)))
        return step.norm, model.groups.coordinates


def right_norm():
    return in_one_process("sgd", steps=1)[0][0][1]


def test_over_tp_alone_each_stage_has_a_norm_of_its_own():
    found = run_ranks(norms, 4, LAYOUTS["tp2 pp2"], ("tp",), device="cpu").values
    of_stage = {place.pp: norm for norm, place in found}
    assert len({norm for norm, _ in found}) == 2 and of_stage[0] != of_stage[1]
    assert max(of_stage.values()) < right_norm() == pytest.approx(math.hypot(*of_stage.values()))


def test_over_all_axes_replicas_are_counted_twice():
    found = run_ranks(norms, 4, LAYOUTS["tp2 dp2"], ("tp", "dp"), device="cpu").values
    assert [norm for norm, _ in found] == pytest.approx([math.sqrt(2) * right_norm()] * 4)


def test_over_the_right_axes_it_is_the_recipes():
    found = run_ranks(norms, 2, MeshLayout(tp=2), ("tp", "pp"), device="cpu").values
    assert [norm for norm, _ in found] == pytest.approx([right_norm()] * 2)


def test_another_axis_is_refused():
    with pytest.raises(ValueError, match="axes are of tp, pp and dp; got 'cp'"):
        NormOverWrongGroups(config(), MeshLayout(), axes=("cp",), optimizer_class=torch.optim.SGD)
    assert not dist.is_initialized()
