import importlib
import sys

import torch

from dtlearn import run_ranks
from dtlearn.production.practice.saved import alike_and_changed, defined_anew


def found():
    """On a rank: parts of each kind, at two moments."""
    import torch.distributed as dist

    rank = dist.get_rank()

    def state(step):
        words = (3, tuple(range(rank, 625)), None)
        model = {"bits": torch.full((2,), float(step)).view(torch.int32), "names": ["a", "b"]}
        return {"own": torch.tensor([step, rank]), "step": step, "python": words, "model": model, "few": [7, (step,)]}

    return alike_and_changed(state(0), state(4)), alike_and_changed(state(4), state(4))


def test_parts_that_all_ranks_have_alike_are_named():
    alike = ["['step']", "['model']['bits']", "['few'][1][0]"]
    assert list(run_ranks(found, 2)) == [(alike, [])] * 2
    assert list(run_ranks(found, 1)) == [([], [])]


def test_a_class_that_is_defined_anew_has_kept_nothing(tmp_path, monkeypatch):
    path = tmp_path / "keeper.py"
    path.write_text("kept = []\n\nclass Keeper:\n    last = None\n    def all(self):\n        return kept, self.last\n")
    monkeypatch.syspath_prepend(tmp_path)
    keeper = importlib.import_module("keeper")

    keeper.kept.append(1)
    keeper.Keeper.last = 2
    assert keeper.Keeper().all() == ([1], 2)
    assert defined_anew(keeper.Keeper)().all() == ([], None)
    del sys.modules["keeper"]
