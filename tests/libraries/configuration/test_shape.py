"""Keys that are none and values that are none for their key: one sentence each, with what to write."""

import math

import pytest

from dtlearn.libraries.configuration.keys import DS_KEYS, OLD_NAMES, READ_NOWHERE, REMOVED
from dtlearn.libraries.configuration.shape import SECTIONS, idle_keys, removed_keys, unknown_keys, wrong_values

UNKNOWN = [
    ({"gradient_cliping": 1}, "ignores it without a word; did you mean gradient_clipping?"),
    ({"offload_optimizer": {}}, "did you mean zero_optimization.offload_optimizer?"),
    ({"zero_optimization": {"zero_optimization": {}}}, "did you mean zero_optimization at the top?"),
    ({"zero_optimization": {"stagee": 1}}, "may refuse it; did you mean stage?"),
    ({"fp16": {"Enabled": True}}, "did you mean enabled?"),
    ({"bf16": {"loss_scale": 1}}, "did you mean fp16.loss_scale?"),
    ({"qqqq": 1}, "take it out."),
    ({"": 1}, "'' is no key"),
    ({1: 2}, "keys of a ds_config are texts, got 1."),
    ({None: 2}, "keys of a ds_config are texts, got None."),
    ({"zero_optimization": {3: 2}}, "are texts, got 3 in zero_optimization."),
]
WRONG = [
    *(({section: value}, f"{section} must be a dictionary with its keys") for section in
      ("zero_optimization", "fp16", "bf16", "optimizer") for value in ([], "x", 3, True, None)),
    ({"fp16": {"enabled": "true"}}, "fp16.enabled must be true or false, got 'true'"),
    ({"fp16": {"enabled": 1}}, "fp16.enabled must be true or false, got 1"),
    ({"fp16": {"enabled": "auto"}}, 'fp16.enabled is "auto"'),
    *(({"gradient_clipping": value}, "gradient_clipping must be a finite number of 0 or more") for value in
      (None, "1.0", -1, math.nan, [1])),
    ({"gradient_clipping": "auto"}, "Transformers' word: DeepSpeed itself needs a number"),
    ({"zero_optimization": {"stage": True}}, "stage must be 0, 1, 2 or 3, a whole number; got True"),
    ({"zero_optimization": {"stage": 2.0}}, "a whole number; got 2.0"),
    ({"zero_optimization": {"stage": [2]}}, r"a whole number; got [2]"),
    ({"zero_optimization": {"reduce_bucket_size": 0.5}}, "reduce_bucket_size must be a whole number"),
    ({"zero_optimization": {"reduce_bucket_size": -1}}, "reduce_bucket_size must be 0 or more"),
    ({"zero_optimization": {"overlap_comm": "yes"}}, "overlap_comm must be true or false"),
    *(({"zero_optimization": {"offload_param": {"device": value}}}, "device must be one of none, cpu, nvme, got") for
      value in ("gpu", "CPU", ["cpu"], None)),
    ({"zero_optimization": {"offload_param": "cpu"}}, "offload_param must be a dictionary with its keys, got 'cpu'"),
    ({"optimizer": {}}, "optimizer has no type, so DeepSpeed makes none"),
    ({"optimizer": {"type": 3}}, "optimizer.type must be a text, got 3"),
    ({"optimizer": {"type": "AdamW", "params": {"lr": "x"}}}, "optimizer.params.lr must be a finite number"),
    ({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}, 'optimizer.params.lr is "auto"'),
    ({"optimizer": {"type": "AdamW", "params": []}}, "optimizer.params must be a dictionary of arguments"),
    ({"train_batch_size": 0}, "train_batch_size must be 1 or more, got 0"),
    ({"train_batch_size": "8"}, "train_batch_size must be a whole number, got '8'"),
    ({"train_batch_size": "auto"}, "DeepSpeed itself needs a number"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "says"), UNKNOWN, ids=[str(config) for config, _ in UNKNOWN])
def test_an_unknown_key_is_named_with_the_nearest(config, says):
    (sentence,) = unknown_keys(config)
    assert says in sentence


@pytest.mark.parametrize(("config", "says"), WRONG, ids=[str(config) for config, _ in WRONG])
def test_a_wrong_value_is_named(config, says):
    (sentence,) = wrong_values(config)
    assert says in sentence and sentence.endswith(".")


@pytest.mark.parametrize("key", DS_KEYS, ids=lambda key: key.path)
def test_every_default_is_a_value_that_its_key_takes(key):
    config = nested(key.path, key.default)
    config.setdefault("optimizer", {}).setdefault("type", "AdamW")
    if key.path != "optimizer.type":
        assert list(wrong_values(config)) == []
        assert list(unknown_keys(config)) == []


def test_a_size_may_be_written_with_an_exponent_and_an_offload_may_be_none():
    assert list(wrong_values({"zero_optimization": {"reduce_bucket_size": 5e8, "offload_param": None}})) == []
    assert "zero_optimization.offload_param" in SECTIONS


@pytest.mark.parametrize("path", [*OLD_NAMES, *READ_NOWHERE])
def test_an_old_name_and_a_key_that_nothing_reads_are_said(path):
    (sentence,) = idle_keys(nested(path, True))
    assert sentence.startswith(path) and sentence.endswith(".")
    assert list(unknown_keys(nested(path, True))) == []


@pytest.mark.parametrize("path", REMOVED)
def test_what_was_removed_is_said(path):
    (sentence,) = removed_keys(nested(path, {}))
    assert sentence.startswith(f"{path} was removed in DeepSpeed 0.19.7")


def nested(path, value):
    for name in reversed(path.split(".")):
        value = {name: value}
    return value
