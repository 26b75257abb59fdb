"""DeepSpeed without a compiler, or a sentence if it is not there."""

import os

import pytest

from dtlearn.libraries.quiet_deepspeed import OP_OF_SHARED_MEMORY, extensions_folder, has_deepspeed, quiet_deepspeed


def test_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("dtlearn.libraries.quiet_deepspeed.has_deepspeed", lambda: False)
    with pytest.raises(ValueError, match="make libraries"):
        quiet_deepspeed()


def test_operators_are_built_in_a_folder_of_the_courses_own(monkeypatch, tmp_path):
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert extensions_folder() == tmp_path / "dtlearn" / "torch_extensions"
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/elsewhere")
    assert str(extensions_folder()) == "/elsewhere"


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_nothing_is_compiled_and_fp16_is_allowed_if_asked_for():
    assert has_deepspeed()
    quiet_deepspeed()
    import deepspeed.ops
    from deepspeed.accelerator import get_accelerator

    assert deepspeed.ops.__compatible_ops__[OP_OF_SHARED_MEMORY] is False
    assert os.environ["DS_ACCELERATOR"] == "cpu"
    before = get_accelerator().is_fp16_supported
    assert not before()
    quiet_deepspeed(allow_fp16=True)
    assert get_accelerator().is_fp16_supported() is True
    get_accelerator().is_fp16_supported = before
