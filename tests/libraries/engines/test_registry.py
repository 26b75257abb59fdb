"""Engines that need no library, with all that the page leaves out, beside one process; and what each refuses."""

from dataclasses import replace

import pytest
import torch

from dtlearn.libraries.description import RunDescription
from dtlearn.libraries.engines import base
from dtlearn.libraries.engines.registry import ENGINES, find_engine, make_engine
from dtlearn.runtime.run import run_ranks
from tests.libraries.runs import EXACT, apart, losses_of, reference_losses

RUN = RunDescription()
TIED = replace(RUN.config, tie_embeddings=True)
CASES = {
    "ddp": {"accumulation": 2, "clipping": 0.5, "recompute": True},
    "fsdp2": {"accumulation": 2, "clipping": 0.5, "recompute": True},
    "fsdp2 on the host": {"zero_stage": 3, "offload_parameters": True},
    "tp": {"tp": 2, "recompute": True},
    "pipeline": {"pp": 2, "accumulation": 4, "recompute": True},
    "accelerate_ddp": {"accumulation": 2, "clipping": 0.5},
    "accelerate_fsdp": {},
}


@pytest.mark.parametrize("case", CASES)
def test_the_losses_are_those_of_one_process(case):
    run = replace(RUN, **CASES[case])
    ranks = run_ranks(losses_of, run.world_size, case.split()[0], run, device="cpu").values
    assert all(losses == ranks[0] for losses in ranks)
    assert apart(ranks[0], reference_losses(run)) < EXACT


def without_a_sum(run):
    """Planted: DDP that averages nothing."""
    torch.nn.parallel.DistributedDataParallel.forward = lambda self, *inputs: self.module(*inputs)
    return losses_of("ddp", run)


def test_ranks_that_do_not_average_are_found():
    assert apart(run_ranks(without_a_sum, 2, RUN, device="cpu")[0], reference_losses(RUN)) > 100 * EXACT


@pytest.mark.parametrize(
    ("engine", "changes", "says"),
    [
        ("ddp", {"tp": 2}, "the engine 'ddp' takes tp=1, got 2"),
        ("deepspeed", {"tp": 2}, "the engine 'deepspeed' takes tp=1, got 2"),
        ("ddp", {"zero_stage": 1}, "the engine 'ddp' takes zero_stage=0, got 1"),
        ("fsdp2", {"pp": 2}, "the engine 'fsdp2' takes pp=1, got 2"),
        ("fsdp2_kept", {"tp": 2}, "takes tp=1, got 2"),
        ("reference", {}, "takes world_size=1, got 2"),
        ("fsdp2", {"precision": "fp16"}, "takes precision='fp32' or 'bf16', got 'fp16'"),
        ("tp", {"tp": 2, "precision": "bf16"}, "the engine 'tp' takes precision='fp32', got 'bf16'"),
        ("pipeline", {"pp": 2, "clipping": 1.0}, "the engine 'pipeline' takes clipping=0.0, got 1.0"),
        ("accelerate_fsdp", {"precision": "bf16"}, "takes precision='fp32'"),
        ("pipeline", {"pp": 2, "config": TIED}, "takes config.tie_embeddings=False, got True"),
        ("deepspeed_pipeline", {"pp": 2, "config": TIED}, "takes config.tie_embeddings=False, got True"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(engine, changes, says):
    with pytest.raises(ValueError, match=says):
        make_engine(engine, replace(RUN, **changes))


def test_every_engine_has_a_home_and_a_chapter():
    for name, kind in ENGINES.items():
        assert find_engine(name) is kind
        assert kind.title and kind.chapter.startswith("ch")
        assert (base.__file__.rpartition("/")[0] + "/").endswith("engines/") and "." in kind.home
    with pytest.raises(ValueError, match="engine must be one of"):
        find_engine("zero")
