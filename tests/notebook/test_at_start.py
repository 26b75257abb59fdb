from types import SimpleNamespace

from dtlearn.notebook import at_start
from dtlearn.notebook.exercise import ExerciseMagics
from dtlearn.notebook.magics import RanksMagics


def test_a_kernel_that_starts_has_the_magics_and_begins_nothing(monkeypatch):
    added = []
    monkeypatch.setattr("dtlearn.runtime.agent.client.get_agent", lambda: added.append("an agent"))
    monkeypatch.setattr("dtlearn.notebook.exercise.get_judge", lambda: added.append("a judge"))
    at_start.load_ipython_extension(SimpleNamespace(register_magics=added.append))
    assert added == [RanksMagics, ExerciseMagics]
