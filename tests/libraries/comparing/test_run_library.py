"""A run from the head: titles, refusals, and the way through another Python."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dtlearn.libraries import environment
from dtlearn.libraries.comparing import run_library as module
from dtlearn.libraries.comparing.requests import BASE, REQUESTS
from dtlearn.libraries.comparing.run_library import run_libraries, run_library, title_of

ONE = replace(BASE, world_size=1)


def test_a_title_says_what_the_description_makes_of_an_engine():
    run = replace(BASE, zero_stage=3, precision="bf16", recompute=True, offload_optimizer=True)
    assert title_of("deepspeed", run) == "DeepSpeed, ZeRO 3, bf16, recomputation, optimizer offload"
    assert title_of("deepspeed_pipeline", replace(BASE, pp=2)) == "DeepSpeed PipelineModule, ZeRO 0, pp 2"
    alone, four = replace(BASE, pp=2, accumulation=2), replace(BASE, pp=2, accumulation=2, world_size=4)
    assert title_of("pipeline", alone) == "torch pipelining, 1F1B, pp 2"
    assert title_of("pipeline", four) == "torch pipelining, 1F1B, pp 2, FSDP2 over dp 2"
    assert title_of("tp", replace(BASE, tp=2, world_size=4)) == "torch DTensor, tp, tp 2, FSDP2 over dp 2"


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("deepspeed", {"options": {"bogus": 1}}, "bogus is no key of a ds_config"),
        ("deepspeed", {"options": {"zero_optimization": {"bogus": 1}}}, "zero_optimization.bogus is no key"),
        ("accelerate_deepspeed", {"options": {"amp": {}}}, "amp was removed"),
        ("deepspeed", {"options": {"train_batch_size": 9}}, r"9 is not 4 \* 1 \* 2"),
        ("deepspeed", {"options": {"zero_optimization": {"stage": "2"}}}, "stage must be 0, 1, 2 or 3"),
        ("ddp", {"tp": 2}, "the engine 'ddp' takes tp=1, got 2"),
        ("fsdp2", {"pp": 2}, "the engine 'fsdp2' takes pp=1, got 2"),
        ("ddp", {"options": {"gradient_clipping": 1.0}}, "options are keys of a ds_config, and the engine 'ddp' reads"),
    ],
)
def test_faulty_options_are_refused_before_anything_starts(name, changes, says, monkeypatch):
    monkeypatch.setattr(module, "run_here", lambda *_: pytest.fail("a run started"))
    monkeypatch.setattr(module, "_in_python", lambda *_: pytest.fail("a run started"))
    with pytest.raises(ValueError, match=says):
        run_library(name, replace(BASE, **changes))


def test_all_requests_are_allowed():
    for name, run in REQUESTS.values():
        module.refuse_faults(name, run)


def test_what_is_no_engine_and_what_is_missing_is_said(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="engine must be one of reference, ddp"):
        run_library("horovod", BASE)
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "no_python"))
    monkeypatch.setattr(environment, "is_installed", lambda name: False)
    with pytest.raises(environment.LibraryMissing, match="deepspeed is not installed"):
        run_library("deepspeed", BASE)


def test_another_python_gives_the_same_result(monkeypatch):
    """The whole way of a library that is not here: JSON, a process, JSON."""
    (here,) = run_libraries([("reference", ONE)])
    (there,) = module._in_python(Path(sys.executable), [("reference", ONE)], 100)
    assert (there.losses, there.ranks, there.title) == (here.losses, here.ranks, here.title)
    assert json.loads(json.dumps(asdict(ONE)))["config"]["num_layers"] == 2
