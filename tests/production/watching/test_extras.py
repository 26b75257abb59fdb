import importlib.util
import sys

import pytest

from dtlearn.production.watching.extras import ExtraMissing, load_extra
from dtlearn.production.watching.tune_search import search_learning_rate
from dtlearn.production.watching.wandb_log import log_offline, read_offline

HAVE_EXTRAS = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(HAVE_EXTRAS, reason="here they are installed")
@pytest.mark.parametrize(
    ("use", "title"),
    [
        (lambda: log_offline("metrics.jsonl", "runs"), "Weights & Biases"),
        (lambda: read_offline("run-1.wandb"), "Weights & Biases"),
        (lambda: search_learning_rate([0.1], "runs"), "Ray"),
    ],
)
def test_one_sentence_says_how_to_install(use, title):
    with pytest.raises(ExtraMissing) as raised:
        use()
    assert str(raised.value) == (
        f"{title} is not installed for this Python: `make watching` makes .venv-watching, which has it, and "
        "`pip install 'dtlearn[watching]'` puts it into an environment of yours"
    )


def test_what_lacks_inside_a_package_is_told_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        load_extra("ray")
