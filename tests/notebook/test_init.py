from types import SimpleNamespace

import dtlearn
from dtlearn import notebook
from dtlearn.notebook.exercises.exercise import ExerciseMagics
from dtlearn.notebook.exercises.help_magics import HelpMagics
from dtlearn.notebook.magics import RanksMagics

MAGICS = [RanksMagics, ExerciseMagics, HelpMagics]


def test_loading_adds_the_magics_and_the_agent_begins_to_load_what_cells_need(monkeypatch):
    asked, added = [], []
    monkeypatch.setattr("dtlearn.runtime.agent.client.get_agent", lambda: SimpleNamespace(prepare=asked.append))
    dtlearn.load_ipython_extension(SimpleNamespace(register_magics=added.append))
    assert (asked, added) == (["kernel"], MAGICS)


def test_a_kernel_that_starts_has_the_magics_and_begins_nothing(monkeypatch):
    added = []
    monkeypatch.setattr("dtlearn.runtime.agent.client.get_agent", lambda: added.append("an agent"))
    monkeypatch.setattr("dtlearn.notebook.exercises.exercise.get_judge", lambda: added.append("a judge"))
    notebook.load_ipython_extension(SimpleNamespace(register_magics=added.append))
    assert added == MAGICS
