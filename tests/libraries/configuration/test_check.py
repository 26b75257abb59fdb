"""The checker of a ds_config: each fault is found, alone, and in a sentence that says what to change."""

import copy

import pytest

from dtlearn.libraries.comparing.requests import REQUESTS
from dtlearn.libraries.configuration.check import batch_numbers, check_ds_config, faults_that_stop
from dtlearn.libraries.configuration.from_description import ds_config_of, laid_over

GOOD = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000},
    "bf16": {"enabled": True},
}
FAULTS = [
    ({"zero_optimization": {"stage": 4}}, "stage must be 0, 1, 2 or 3, a whole number; got 4"),
    ({"train_batch_size": 20}, "20 is not 2 * 2 * 4"),
    ({"train_batch_size": "auto"}, "Accelerate's and Transformers' word"),
    ({"train_batch_size": 16.0}, "must be a whole number"),
    ({"bf16": {"enabled": False}, "fp16": {"enabled": True}}, "fp16 on a processor"),
    ({"torch_autocast": {"enabled": True}}, "enable one"),
    ({"optimizer": {"type": "OneBitAdam"}}, "was removed in DeepSpeed 0.19.7: gradients are not compressed"),
    ({"optimizer": {"type": "SGD"}}, "only with zero_allow_untested_optimizer: true"),
    ({"optimizer": {"type": "Adam"}}, "adam_w_mode: false"),
    ({"optimizer": {"params": {"max_grad_norm": 1.0}}}, "is refused: write gradient_clipping"),
    ({"sparse_attention": {}}, "sparse_attention was removed"),
    ({"zero_optimization": {"mics_shard_size": 2}}, "use zero_hpz_partition_size"),
    ({"gradient_clippping": 0.5}, "ignores it without a word; did you mean gradient_clipping?"),
    ({"zero_optimization": {"reduce_bucket": 5}}, "did you mean reduce_bucket_size?"),
    ({"zero_optimization": {"loss_scale_window": 5}}, "did you mean fp16.loss_scale_window?"),
    ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, "offload_param needs stage 3"),
    ({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}, "needs stage 1, 2 or 3"),
    ({"bf16": {"enabled": "true"}}, "bf16.enabled must be true or false, got 'true'"),
    ({"fp16": []}, "fp16 must be a dictionary with its keys, got []"),
    ({"zero_optimization": {"allgather_partitions": True}}, "allgather_partitions does nothing"),
    ({"tensor_parallel": {"autotp_size": 2}}, "counts each sequence 2 times with tensor_parallel.autotp_size"),
]


def test_a_good_one_has_no_fault():
    assert check_ds_config(GOOD, 4) == []


@pytest.mark.parametrize(("change", "says"), FAULTS, ids=[says[:30] for _, says in FAULTS])
def test_each_fault_is_found_alone(change, says):
    (fault,) = check_ds_config(laid_over(GOOD, change), 4)
    assert says in fault and fault.endswith((".", "?"))


@pytest.mark.parametrize(
    ("key", "says"), [("gradient_clipping", "1.0 since 0.19.3"), ("reduce_bucket_size", "2 GB in fp32")]
)
def test_a_default_that_surprises_is_named(key, says):
    config = copy.deepcopy(GOOD)
    (config if key in config else config["zero_optimization"]).pop(key)
    (fault,) = check_ds_config(config, 4)
    assert says in fault


def test_an_offloaded_optimizer_that_is_an_object_needs_a_key():
    config = laid_over(GOOD, {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}})
    assert check_ds_config(config, 4) == []  # DeepSpeed makes it, and asks for nothing
    del config["optimizer"]
    (fault,) = check_ds_config(config, 4)
    assert "unless zero_force_ds_cpu_optimizer is false" in fault
    assert check_ds_config({**config, "zero_force_ds_cpu_optimizer": False}, 4) == []


def test_adam_that_is_adamw_by_wish_is_no_fault():
    optimizer = {"type": "Adam", "params": {"adam_w_mode": True}}
    assert check_ds_config(laid_over(GOOD, {"optimizer": optimizer}), 4) == []


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_stage_allocates_its_bucket(stage):
    (fault,) = check_ds_config({**GOOD, "zero_optimization": {"stage": stage}}, 4)
    assert "reduce_bucket_size is 5e8 elements" in fault


def test_the_ranks_of_autotp_count_as_replicas():
    """With an `mpu`, tp=2, they do not: 8 sequences are 2 * 2 * 2."""
    by_autotp = laid_over(GOOD, {"tensor_parallel": {"autotp_size": 2}})
    assert check_ds_config({**GOOD, "train_batch_size": 8}, 4, tp=2) == []
    faults = check_ds_config({**by_autotp, "train_batch_size": 8}, 4)
    assert "8 is not 2 * 2 * 4" in faults[0] and "takes the ranks of a layer for replicas" in faults[0]
    del by_autotp["train_batch_size"]
    assert check_ds_config(by_autotp, 4) == check_ds_config(by_autotp, 4, tp=2) == []
    (fault,) = check_ds_config(by_autotp, 4, tp=4)
    assert "autotp_size is 2, and tp is 4" in fault
    (fault,) = check_ds_config(laid_over(by_autotp, {"tensor_parallel": {"autotp_size": 3}}), 4)
    assert "must divide the ranks, got 3 and 4" in fault


def test_autotp_knows_no_stages():
    """tests/libraries/engines/test_deepspeed_three_axes.py shows what DeepSpeed does with both."""
    by_autotp = laid_over(GOOD, {"tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 1}})
    del by_autotp["train_batch_size"]
    for faults in (check_ds_config(by_autotp, 4, pp=2), faults_that_stop(by_autotp, 4, pp=2)):
        (fault,) = faults
        assert "autotp_size does not go with a pipeline" in fault


@pytest.mark.parametrize("config", [[], None, "x", 3])
def test_what_is_no_dictionary_is_refused(config):
    for ask in (lambda: check_ds_config(config, 2), lambda: batch_numbers(config, 2)):
        with pytest.raises(ValueError, match="a ds_config must be a dictionary, got"):
            ask()


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"world_size": "2"}, "world_size must be a whole number"),
        ({"world_size": None}, "world_size must be a whole number"),
        ({"tp": 0}, "tp must be 1 or more"),
        ({"pp": 0}, "pp must be 1 or more"),
        ({"tp": -1}, "tp must be 1 or more"),
        ({"tp": 3}, "tp \\* pp must divide world_size"),
        ({"device": "tpu"}, 'device must be "cpu" or "cuda", got \'tpu\''),
    ],
)
def test_sizes_that_are_none_are_refused(sizes, says):
    with pytest.raises(ValueError, match=says):
        check_ds_config(GOOD, **{"world_size": 4, **sizes})


def test_what_stops_a_run_is_no_advice():
    advice = {**GOOD, "zero_optimization": {"stage": 2, "allgather_partitions": True}}
    del advice["gradient_clipping"]
    assert len(check_ds_config(advice, 4)) == 3 and faults_that_stop(advice, 4) == []
    removed = {"optimizer": {"type": "OneBitAdam"}}
    clipped = {"optimizer": {"params": {"max_grad_norm": 1.0}}}
    assert faults_that_stop(laid_over(GOOD, {"optimizer": {"type": "Adam"}}), 4) == []
    for change in (
        {"bogus": 1},
        removed,
        clipped,
        {"train_batch_size": 20},
        {"amp": {}},
        {"zero_optimization": {"stage": "2"}},
    ):
        assert len(faults_that_stop(laid_over(GOOD, change), 4)) == 1


def test_a_pipeline_takes_stages_0_and_1_only():
    config = {**GOOD, "train_batch_size": 8}
    assert check_ds_config(config, 4, pp=2) == [
        "ZeRO 2 does not go with a pipeline: the PipelineEngine takes stages 0 and 1."
    ]
    config["zero_optimization"] = {"stage": 1, "reduce_bucket_size": 1}
    assert check_ds_config(config, 4, pp=2) == []


def test_fp16_on_a_gpu_is_no_fault():
    assert check_ds_config(laid_over(GOOD, {"bf16": {"enabled": False}, "fp16": {"enabled": True}}), 4, "cuda") == []


@pytest.mark.parametrize("name", [name for name in REQUESTS if "deepspeed" in REQUESTS[name][0]])
def test_our_own_are_good(name):
    _, run = REQUESTS[name]
    allowed = {"fp16 on a processor"} if run.precision == "fp16" else set()
    faults = check_ds_config(ds_config_of(run), run.world_size, tp=run.tp, pp=run.pp)
    assert {fault.partition(":")[0] for fault in faults} == allowed


@pytest.mark.parametrize(
    ("given", "dp", "numbers"),
    [
        ((16, 2, None), 4, (16, 2, 2)),
        ((16, None, 2), 4, (16, 2, 2)),
        ((None, 2, 2), 4, (16, 2, 2)),
        ((16, None, None), 4, (16, 4, 1)),
        ((None, 3, None), 4, (12, 3, 1)),
    ],
)
def test_what_is_left_out_is_filled_in_as_deepspeed_does(given, dp, numbers):
    assert batch_numbers(keys(given), dp) == numbers


def keys(given):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return {name: value for name, value in zip(names, given, strict=True) if value is not None}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((None, None, None), "give train_batch_size"),
        ((None, None, 2), "give train_batch_size"),
        ((17, 2, None), r"17 is not 2 \* 2 \* 4"),
        ((2, 4, None), r"2 is less than 4 \* 4"),
        ((3, None, None), r"3 is less than 1 \* 4"),
        ((7, None, 2), r"7 is less than 2 \* 4"),
        ((0, None, None), "train_batch_size must be 1 or more, got 0"),
        ((8, -4, None), "train_micro_batch_size_per_gpu must be 1 or more, got -4"),
        ((8, 2, 0), "gradient_accumulation_steps must be 1 or more, got 0"),
        ((8.0, None, None), "train_batch_size must be a whole number, got 8.0"),
        ((True, None, None), "train_batch_size must be a whole number, got True"),
        (("auto", None, None), "train_batch_size must be a whole number, got 'auto'"),
    ],
)
def test_what_does_not_fit_is_refused(given, says):
    with pytest.raises(ValueError, match=says):
        batch_numbers(keys(given), 4)


@pytest.mark.parametrize("dp", [0, -1, 2.0, "2", True])
def test_replicas_are_a_whole_number(dp):
    with pytest.raises(ValueError, match="dp must be"):
        batch_numbers({"train_batch_size": 8}, dp)


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "given", [(16, 2, None), (16, None, 2), (None, 2, 2), (16, None, None), (None, 3, None), (17, 2, None)]
)
def test_deepspeed_itself_has_the_same_numbers(given, monkeypatch):
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

    monkeypatch.setattr(comm, "get_rank", lambda: 0)
    monkeypatch.setattr(comm, "get_world_size", lambda: 4)
    try:
        expected = batch_numbers(keys(given), 4)
    except ValueError:
        with pytest.raises(AssertionError):
            DeepSpeedConfig(keys(given))
        return
    real = DeepSpeedConfig(keys(given))
    found = real.train_batch_size, real.train_micro_batch_size_per_gpu, real.gradient_accumulation_steps
    assert found == expected


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_deepspeed_itself_takes_the_ranks_of_autotp_for_replicas(monkeypatch):
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

    monkeypatch.setattr(comm, "get_rank", lambda: 0)
    monkeypatch.setattr(comm, "get_world_size", lambda: 2)
    by_autotp = {"tensor_parallel": {"autotp_size": 2}}
    assert DeepSpeedConfig({"train_batch_size": 8, **by_autotp}).train_micro_batch_size_per_gpu == 4
    with pytest.raises(AssertionError, match=r"8 != 8 \* 1 \* 2"):
        DeepSpeedConfig({**keys((8, 8, 1)), **by_autotp})
    assert DeepSpeedConfig({"train_micro_batch_size_per_gpu": 8, **by_autotp}).train_batch_size == 16
