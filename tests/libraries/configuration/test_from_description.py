"""From a description to a ds_config: everything that a comparison needs is said."""

import json
from dataclasses import replace

from dtlearn.libraries.configuration.check import batch_numbers, check_ds_config
from dtlearn.libraries.configuration.from_description import ds_config_of, laid_over
from dtlearn.libraries.description import RunDescription

RUN = RunDescription(world_size=4, global_batch=16, accumulation=2, zero_stage=2)


def test_it_says_the_batch_three_times_and_the_clipping_once():
    config = ds_config_of(RUN)
    assert batch_numbers(config, RUN.dp) == (16, 2, 2)
    assert config["gradient_clipping"] == 0.0
    assert config["optimizer"]["params"]["torch_adam"] is True
    assert json.loads(json.dumps(config)) == config


def test_the_bucket_is_the_model_and_no_more():
    assert ds_config_of(RUN)["zero_optimization"]["reduce_bucket_size"] == RUN.config.num_parameters


def test_offload_lets_torchs_adam_through():
    config = ds_config_of(replace(RUN, zero_stage=3, offload_optimizer=True, offload_parameters=True))
    assert config["zero_optimization"]["offload_param"]["device"] == "cpu"
    assert "zero_force_ds_cpu_optimizer" not in config  # DeepSpeed asks it of an optimizer object only
    assert check_ds_config(config, 4) == []


def test_options_are_laid_over_section_by_section():
    options = {"zero_optimization": {"overlap_comm": True}, "steps_per_print": 5}
    run = replace(RUN, options=options)
    config = ds_config_of(run)
    assert config["zero_optimization"]["stage"] == 2 and config["zero_optimization"]["overlap_comm"] is True
    assert config["steps_per_print"] == 5
    config["zero_optimization"]["stage"] = 3
    assert options == {"zero_optimization": {"overlap_comm": True}, "steps_per_print": 5}
    assert laid_over({"a": {"b": 1}}, {"a": 2}) == {"a": 2}
