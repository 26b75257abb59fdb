"""The table's defaults beside those of the DeepSpeed that is installed."""

from pathlib import Path

import pytest

from dtlearn.libraries.configuration.check import check_ds_config
from dtlearn.libraries.configuration.keys import ALSO_KNOWN, DS_KEYS, READ_NOWHERE, REMOVED
from dtlearn.libraries.configuration.real_defaults import real_defaults
from dtlearn.libraries.quiet_deepspeed import has_deepspeed

pytestmark = [pytest.mark.libraries, pytest.mark.filterwarnings("ignore")]


def different(table, real):
    return [key.path for key in table if key.default != real[key.path] or type(key.default) is not type(real[key.path])]


def test_the_table_says_what_the_code_has():
    real = real_defaults()
    assert set(real) == {key.path for key in DS_KEYS}
    assert different(DS_KEYS, real) == []
    assert different(DS_KEYS, {**real, "gradient_clipping": 0.0}) == ["gradient_clipping"]  # as it was before 0.19.3


def test_every_zero_key_of_the_code_is_known():
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    fields = DeepSpeedZeroConfig.model_fields
    names = {field.alias or name for name, field in fields.items()} - {"offload_param", "offload_optimizer"}
    known = {key.path for key in DS_KEYS} | {*ALSO_KNOWN}
    assert {name for name in names if f"zero_optimization.{name}" not in known} == set()


def test_what_was_removed_is_refused_by_deepspeed():
    from deepspeed.runtime import config

    top = {path for path in REMOVED if "." not in path}
    assert top == set(config._REMOVED_TOP_LEVEL_CONFIG_KEYS)
    inner = {path.rpartition(".")[2] for path in REMOVED if "." in path}
    assert inner == set(config._REMOVED_ZERO_CONFIG_KEYS)


def test_an_unknown_key_is_ignored_at_the_top_and_refused_in_a_section():
    from deepspeed.runtime.config import DeepSpeedConfig

    assert DeepSpeedConfig({"train_batch_size": 1, "gradient_cliping": 0.5}).gradient_clipping == 1.0
    with pytest.raises(ValueError, match="stagee"):
        DeepSpeedConfig({"train_batch_size": 1, "zero_optimization": {"stagee": 2}})
    faults = check_ds_config({"train_batch_size": 1, "gradient_cliping": 0.5, "gradient_clipping": 0.0}, 1)
    assert len(faults) == 1 and "ignores it without a word; did you mean gradient_clipping?" in faults[0]


def test_keys_that_nothing_reads_are_read_nowhere():
    """Planted: the same search finds the reader of a key that is read."""
    import deepspeed

    folder = Path(deepspeed.__file__).parent / "runtime"
    source = "".join(file.read_text("utf-8") for file in folder.rglob("*.py"))
    for name in ("stages", "partition", "activation_checkpoint_interval"):
        assert (f"pipeline['{name}']" in source) is (f"pipeline.{name}" not in READ_NOWHERE)
    assert source.count("zero_allgather_partitions(") == 1 < source.count("zero_reduce_scatter(")
    assert "zero_optimization.allgather_partitions" in READ_NOWHERE


def test_it_is_there():
    assert has_deepspeed()
