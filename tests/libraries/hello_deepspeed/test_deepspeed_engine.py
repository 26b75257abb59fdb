"""DeepSpeed beside its plain twin: equal losses, and where they are not."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dtlearn.libraries.hello_deepspeed.deepspeed_engine import hello_config
from dtlearn.runtime.run import run_ranks
from tests.libraries.hello_deepspeed.runs import EXACT, apart, small, trained

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_the_configuration_is_plain_data_and_says_what_has_no_fixed_default():
    config = hello_config(small(zero=3, offload=True, precision="bf16", accumulation=2, clip=0.0), 2, 1000)
    assert json.loads(json.dumps(config)) == config
    assert config["gradient_clipping"] == 0.0 and config["bf16"] == {"enabled": True}
    assert config["train_batch_size"] == 8 == config["train_micro_batch_size_per_gpu"] * 2 * 2
    zero = config["zero_optimization"]
    assert zero["reduce_bucket_size"] == 1000 and zero["stage3_param_persistence_threshold"] == 0
    assert zero["offload_optimizer"]["device"] == zero["offload_param"]["device"] == "cpu"
    assert "offload_param" not in hello_config(small(zero=2, offload=True), 2, 1000)["zero_optimization"]


@pytest.mark.libraries
def test_deepspeed_computes_what_its_twin_computes():
    twins = [small(clip=0.2), small(accumulation=2)]
    real = [small(engine="deepspeed", zero=stage, clip=0.2) for stage in range(4)]
    real += [small(engine="deepspeed", zero=stage, accumulation=2) for stage in (1, 2, 3)]
    real += [small(engine="deepspeed", zero=stage, accumulation=2, offload=True) for stage in (2, 3)]
    clipped, accumulated, *runs = run_ranks(trained, 2, [*twins, *real], device="cpu", timeout=180).values[0]
    assert [run.engine for run in runs] == ["deepspeed"] * 9
    assert max(apart(run, clipped) for run in runs[:4]) <= EXACT
    assert max(apart(run, accumulated) for run in runs[4:]) <= EXACT
    assert apart(clipped, accumulated) > 10 * EXACT


@pytest.mark.libraries
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_16_bits_stage_0_takes_another_path(precision):
    options = [small(precision=precision, engine="deepspeed", zero=stage) for stage in range(4)]
    twin, *stages = run_ranks(trained, 2, [small(precision=precision), *options], device="cpu", timeout=180).values[0]
    near = max(apart(run, twin) for run in stages[1:])
    assert near < 1e-2  # roundings of 16 bits
    assert apart(stages[0], twin) > 5 * near  # if not, DeepSpeed has been mended: see LEFT_BEHIND


@pytest.mark.libraries
def test_a_run_goes_on_from_deepspeeds_checkpoint(tmp_path):
    whole = small(engine="deepspeed", zero=2, steps=4)
    parts = [small(engine="deepspeed", zero=2, checkpoint_dir=str(tmp_path), steps=steps) for steps in (2, 4)]
    straight, first, rest = run_ranks(trained, 2, [whole, *parts], device="cpu", timeout=180).values[0]
    assert rest.first_step == 2
    assert first.losses + rest.losses == pytest.approx(straight.losses, abs=EXACT)
    assert (tmp_path / "latest").read_text() == "last"


@pytest.mark.libraries
@pytest.mark.timeout(300)  # three Pythons after one another, each of which loads torch
@pytest.mark.parametrize(
    "launcher",
    [
        ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"],
        [
            "deepspeed.launcher.runner",
            "--num_gpus",
            "2",
            "--master_addr",
            "127.0.0.1",
            "--master_port",
            "{}",
            "--module",
        ],
    ],
    ids=["torchrun", "deepspeed"],
)
def test_both_launchers_start_it(launcher, free_port):
    quick = ["--zero", "1", "--steps", "2", "--batch-size", "4", "--context-length", "16", "--hidden-size", "32"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    launcher = [part.format(free_port) for part in launcher]
    command = [sys.executable, "-m", *launcher, "dtlearn.libraries.hello_deepspeed", *quick]
    environment = {**os.environ, "PATH": path, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "DeepSpeed, ZeRO 1: 2 ranks on cpu, fp32" in done.stdout
