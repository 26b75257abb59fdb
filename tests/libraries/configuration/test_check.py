"""The checker of a ds_config: each fault is found, alone, and in a sentence that says what to change."""

import copy

import pytest

from dtlearn.libraries.comparing.requests import REQUESTS
from dtlearn.libraries.configuration.check import batch_numbers, check_ds_config
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
    ({"zero_optimization": {"stage": 4}}, "stage must be 0, 1, 2 or 3, got 4"),
    ({"train_batch_size": 20}, "20 is not 2 * 2 * 4"),
    ({"train_batch_size": "auto"}, "Accelerate's and Transformers' word"),
    ({"train_batch_size": 16.0}, "must be a whole number"),
    ({"bf16": {"enabled": False}, "fp16": {"enabled": True}}, "fp16 on a processor"),
    ({"torch_autocast": {"enabled": True}}, "enable one"),
    ({"optimizer": {"type": "OneBitAdam"}}, "was removed in DeepSpeed 0.19.7: gradients are not compressed"),
    ({"optimizer": {"type": "SGD"}}, "only with zero_allow_untested_optimizer: true"),
    ({"optimizer": {"type": "Adam"}}, "adam_w_mode: false"),
    ({"optimizer": {"params": {"max_grad_norm": 1.0}}}, "clips nothing: write gradient_clipping"),
    ({"sparse_attention": {}}, "sparse_attention was removed"),
    ({"zero_optimization": {"mics_shard_size": 2}}, "use zero_hpz_partition_size"),
    ({"gradient_clippping": 0.5}, "ignores it without a word; did you mean gradient_clipping?"),
    ({"zero_optimization": {"reduce_bucket": 5}}, "did you mean reduce_bucket_size?"),
    ({"zero_optimization": {"loss_scale_window": 5}}, "did you mean fp16.loss_scale_window?"),
    ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, "offload_param needs stage 3"),
    (
        {
            "optimizer": {"params": {"torch_adam": True}},
            "zero_optimization": {"offload_optimizer": {"device": "cpu"}},
        },
        "zero_force_ds_cpu_optimizer: false",
    ),
    ({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}, "needs stage 1, 2 or 3"),
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


@pytest.mark.parametrize("given", [(None, None, None), (None, None, 2), (17, 2, None), (2, 4, None), (3, None, None)])
def test_what_does_not_fit_is_refused(given):
    with pytest.raises(ValueError, match=r"give train_batch_size|micro-batch \* accumulation \* dp"):
        batch_numbers(keys(given), 4)


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
