"""A run from the head: titles, refusals, and the way through another Python."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dtlearn.libraries import environment
from dtlearn.libraries.comparing import run_library as module
from dtlearn.libraries.comparing.requests import BASE
from dtlearn.libraries.comparing.run_library import run_libraries, run_library, title_of

ONE = replace(BASE, world_size=1)


def test_a_title_says_what_the_description_makes_of_an_engine():
    run = replace(BASE, zero_stage=3, precision="bf16", recompute=True, offload_optimizer=True)
    assert title_of("deepspeed", run) == "DeepSpeed, ZeRO 3, bf16, recomputation, optimizer offload"
    assert title_of("deepspeed_pipeline", replace(BASE, pp=2)) == "DeepSpeed PipelineModule, ZeRO 0, pp 2"


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
