"""The page: the same losses as the real engines to the last bit, and as one process; DeepSpeed's too where it is."""

from dataclasses import replace

import pytest
import torch.distributed as dist

from dtlearn.libraries import page_engines
from dtlearn.libraries.configuration.from_description import ds_config_of
from dtlearn.libraries.description import RunDescription
from dtlearn.libraries.engines.base import batches, build_model, mean_over_ranks, own_micro_batches
from dtlearn.libraries.quiet_deepspeed import quiet_deepspeed
from dtlearn.runtime.run import run_ranks

from .runs import EXACT, apart, losses_of, reference_losses

RUN = RunDescription(steps=4, clipping=0.5)


def page_losses(kind, run):
    """The losses of the page's engine of that kind."""
    if kind == "deepspeed":
        quiet_deepspeed()
        engine = page_engines.DeepSpeedEngine(build_model(run), ds_config_of(run))
    elif kind == "accelerate_deepspeed":
        quiet_deepspeed()
        config = {**ds_config_of(run), "zero_allow_untested_optimizer": True}
        del config["optimizer"]  # Accelerate is handed one, and refuses two
        engine = page_engines.AccelerateEngine(build_model(run), run, config)
        assert type(engine.model).__name__ == "DeepSpeedEngine"  # and not DDP in its place
        assert engine.model.zero_optimization_stage() == run.zero_stage
    else:
        make = {"accelerate_ddp": page_engines.AccelerateEngine}.get(kind) or getattr(page_engines, kind)
        engine = make(build_model(run), run)
    found = []
    for tokens, targets in batches(run):
        (own,) = own_micro_batches(run, tokens, targets, dist.get_rank())
        found.append(mean_over_ranks(engine.step(*own)))
    return found


def both_losses(kind, run):
    """The losses of the page's engine, and of the real one of that kind."""
    return page_losses(kind, run), losses_of(kind, run)


def check(kind, run):
    if kind == "accelerate_deepspeed":  # a process has one Accelerator with a plugin
        page, real = (run_ranks(ask, run.world_size, kind, run, device="cpu")[0] for ask in (page_losses, losses_of))
    else:
        page, real = run_ranks(both_losses, run.world_size, kind, run, device="cpu")[0]
    assert page == real
    assert apart(page, reference_losses(run)) < EXACT
    return page


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "accelerate_ddp"])
def test_the_page_is_the_real_engine(kind):
    check(kind, RUN)


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_deepspeed_on_the_page(stage):
    check("deepspeed", replace(RUN, zero_stage=stage))


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_accelerate_on_the_page_is_deepspeed_if_a_ds_config_says_so():
    check("accelerate_deepspeed", replace(RUN, zero_stage=2))


def test_without_clipping_the_losses_are_others():
    """Planted: the clipping that the descriptions above ask for does something."""
    assert apart(reference_losses(RUN), reference_losses(replace(RUN, clipping=0.0))) > 100 * EXACT
