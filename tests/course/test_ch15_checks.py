"""What the checks of chapter 15 know of DeepSpeed, held against DeepSpeed: its own reading of a config, a training run,
a checkpoint that it saved, and what it sends. All but the first two need the libraries' environment.
"""

import itertools
import json
import runpy
from typing import Any

import pytest
import torch

from dtlearn import run_ranks
from dtlearn.checks.ch15_deepspeed import batch_identity, ds_config, name_the_library
from dtlearn.course import load_course
from dtlearn.grading import Case
from dtlearn.grading.learner.exercise_files import files_of
from tests.course import record_ch15_steps

COURSE = load_course()


def solution(name: str) -> Any:
    """The worked solution of an exercise of the chapter."""
    return runpy.run_path(str(files_of(COURSE, COURSE.exercise(f"ch15.{name}")).solution))[name]


def test_the_cases_use_every_record_once():
    titles = [title for params in name_the_library.CASES.values() for title in params["steps"]]
    assert sorted(titles) == sorted(name_the_library.STEPS) == sorted(record_ch15_steps.JOBS)


def test_a_record_says_what_its_job_is():
    about = json.loads(record_ch15_steps.FILE.read_text("utf-8"))["about"]
    assert {"recorded", "torch", "deepspeed"} == set(about)
    for title, record in name_the_library.STEPS.items():
        job = record_ch15_steps.JOBS[title]
        assert (record["name"], record["world_size"], record["micro_batches"]) == (
            job.name,
            job.world_size,
            job.micro_batches,
        )
        assert record["numel"] == sum(p.numel() for p in record_ch15_steps.blocks(job).parameters())


class Replicas:
    """The part of a model-parallel unit that DeepSpeed's config asks for the replicas."""

    def __init__(self, dp: int) -> None:
        self.get_data_parallel_world_size = lambda: dp


def as_deepspeed_reads(config: dict[str, Any], dp: int) -> Any:
    from dtlearn.libraries.quiet_deepspeed import quiet_deepspeed

    quiet_deepspeed()
    from deepspeed.runtime.config import DeepSpeedConfig

    return DeepSpeedConfig(config, mpu=Replicas(dp))


@pytest.fixture
def one_process_group(tmp_path):
    """DeepSpeed asks for the rank before it asks its unit for the replicas."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    from dtlearn.libraries.quiet_deepspeed import quiet_deepspeed

    quiet_deepspeed().init_distributed(dist_backend="gloo", dist_init_required=False)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.libraries
def test_batch_sizes_are_filled_in_as_by_deepspeed(one_process_group):
    keys = (batch_identity.TRAIN, batch_identity.MICRO, batch_identity.STEPS)
    outcomes = set()
    for sizes in itertools.product((None, 8, 12), (None, 1, 3, 4), (None, 1, 2)):
        config = {key: size for key, size in zip(keys, sizes, strict=True) if size is not None}
        for tp, dp in ((1, 1), (2, 2), (1, 4)):
            try:
                real = as_deepspeed_reads(config, dp)
                wanted = {key: getattr(real, key) for key in keys}
            except AssertionError:
                wanted = None
            try:
                made = solution("batch_identity")(config, tp * dp, tp=tp)
            except ValueError:
                made = None
            assert made == wanted, (config, dp)
            outcomes.add(wanted is None)
    assert outcomes == {True, False}


@pytest.mark.libraries
def test_the_check_reads_a_config_as_deepspeed_does(one_process_group):
    for name, params in ds_config.CASES.items():
        given = ds_config.inputs(Case(name, 1, 1, params))[0]
        if given["refused"] or given["tries"]:
            continue
        facts = ds_config.on_rank(solution("ds_config"), **given)
        request = {name: value for name, value in given.items() if name not in ("refused", "twice", "tries")}
        real = as_deepspeed_reads(solution("ds_config")(**request), request["world_size"] // request["pp"])
        zero = real.zero_config
        devices = [getattr(zero, key) for key in ("offload_optimizer", "offload_param")]
        assert facts["samples of a step"] == real.train_batch_size
        assert facts["samples of a pass"] == real.train_micro_batch_size_per_gpu
        assert facts["passes of a step"] == real.gradient_accumulation_steps
        assert facts["largest norm"] == real.gradient_clipping
        assert ("bf16" in facts["16-bit formats"]) == real.bfloat16_config.enabled
        assert ("fp16" in facts["16-bit formats"]) == real.float16_config.enabled
        assert facts["ZeRO stage"] == real.zero_optimization_stage
        assert len(facts["offloaded"]) == sum(device is not None and device.device == "cpu" for device in devices)
    left_out = as_deepspeed_reads({"train_batch_size": 1}, 1)
    assert left_out.gradient_clipping == 1.0, "the default that the task states"


REQUEST = {"world_size": 2, "pp": 1, "micro_batch": 3, "global_batch": 12, "precision": "fp32", "stage": 2}
REQUEST |= {"offload": "none", "clipping": None, "rule": "adamw", "lr": 0.01, "weight_decay": 0.5, "device": "cpu"}


@pytest.mark.libraries
@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"stage": 0, "rule": "adam"},
        {"stage": 1, "offload": "optimizer", "clipping": 0.01},
        {"stage": 3, "offload": "parameters", "rule": "adam", "clipping": 0.01},
    ],
    ids=["zero 2", "adam", "offloaded optimizer", "offloaded parameters"],
)
def test_deepspeed_trains_with_the_config_as_torch_does(wish):
    request = REQUEST | wish
    config = solution("ds_config")(**request)

    def train(config):
        import torch
        import torch.distributed as dist

        from dtlearn.libraries.quiet_deepspeed import quiet_deepspeed

        library = quiet_deepspeed()
        library.init_distributed(dist_backend="gloo")
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        engine, *_ = library.initialize(model=model, model_parameters=model.parameters(), config=config)
        samples = torch.randn(3, 2, 2, 3, 4, generator=torch.Generator().manual_seed(5))[:, :, dist.get_rank()]
        for step in samples:
            for x in step:
                engine.backward(engine(x).square().mean())
                engine.step()
        with library.zero.GatheredParameters(list(model.parameters())):
            values = [p.detach().clone() for p in model.parameters()]
        dist.barrier()
        return values

    trained = run_ranks(train, 2, config, timeout=100)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = (torch.optim.AdamW if request["rule"] == "adamw" else torch.optim.Adam)(
        model.parameters(), lr=request["lr"], weight_decay=request["weight_decay"]
    )
    for step in torch.randn(3, 2, 2, 3, 4, generator=torch.Generator().manual_seed(5)):
        optimizer.zero_grad()
        model(step.flatten(0, 2)).square().mean().backward()
        if request["clipping"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), request["clipping"])
        optimizer.step()
    for own in trained:
        torch.testing.assert_close(own, [p.detach() for p in model.parameters()], rtol=1e-4, atol=1e-6)


@pytest.mark.libraries
def test_a_checkpoint_that_deepspeed_saved_becomes_one_file(tmp_path):
    """With odd sizes, a frozen and a tied parameter, buffers, two parameter groups and several flat vectors."""

    def save(folder):
        import torch
        import torch.distributed as dist

        from dtlearn.libraries.quiet_deepspeed import quiet_deepspeed

        library = quiet_deepspeed()
        library.init_distributed(dist_backend="gloo")

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = torch.nn.Linear(3, 3, bias=False)
                self.frozen = torch.nn.Linear(3, 3).requires_grad_(False)
                self.scale = torch.nn.Parameter(torch.tensor([1.5]))  # one of shape () it cannot broadcast
                self.head = torch.nn.Linear(3, 3)
                self.head.weight = self.embedding.weight
                self.register_buffer("mean", torch.full((3,), 0.25))
                self.register_buffer("steps", torch.tensor([7]))

            def forward(self, x):
                return self.head(self.frozen(self.embedding(x)) * self.scale + self.mean)

        torch.manual_seed(0)
        model = Model()
        plain = [model.embedding.weight, model.scale]
        groups = [{"params": plain}, {"params": [model.head.bias], "lr": 0.5}]
        optimizer = torch.optim.Adam(groups, lr=0.1)
        zero = {"stage": 3, "sub_group_size": 6}
        config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": zero, "zero_allow_untested_optimizer": True}
        engine, *_ = library.initialize(model=model, optimizer=optimizer, config=config)
        for _ in range(2):
            engine.backward(engine(torch.randn(2, 3)).square().mean())
            engine.step()
        engine.save_checkpoint(folder, tag="saved")
        with library.zero.GatheredParameters(list(model.parameters())):
            values = {name: value.detach().clone() for name, value in model.state_dict().items()}
        dist.barrier()
        return values

    held = run_ranks(save, 2, str(tmp_path), timeout=100)[0]
    folder = tmp_path / "saved"
    files = {path.name: torch.load(path, weights_only=False) for path in folder.glob("*_states.pt")}
    flats = [one["optimizer_state_dict"]["fp32_flat_groups"] for name, one in files.items() if "optim" in name]
    assert len(files) == 4 and all(len(own) > 1 for own in flats)
    made = solution("one_file")(files)
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    whole = get_fp32_state_dict_from_zero_checkpoint(str(tmp_path), tag="saved")
    assert set(made) == set(whole) == set(held)
    assert made["head.weight"] is made["embedding.weight"]
    for name, value in made.items():
        torch.testing.assert_close(value, whole[name], rtol=0, atol=0)
        torch.testing.assert_close(value, held[name], rtol=0, atol=0)


@pytest.mark.libraries
@pytest.mark.parametrize(
    "title",
    [
        "DDP",
        "FSDP2",
        "ZeRO 1, accumulating",
        "ZeRO 2, accumulating",
        "ZeRO 2 by reduce",
        "ZeRO 3",
        "ZeRO 3 layer by layer",
    ],
)
def test_a_step_sends_today_what_was_recorded(title):
    made = record_ch15_steps.recorded(record_ch15_steps.JOBS[title])
    assert made["calls"] == name_the_library.STEPS[title]["calls"]
