from types import SimpleNamespace

import dtlearn
from dtlearn.notebook.exercise import ExerciseMagics
from dtlearn.notebook.magics import RanksMagics


def test_loading_adds_the_magics_and_the_agent_begins_to_load_what_cells_need(monkeypatch):
    asked, added = [], []
    monkeypatch.setattr("dtlearn.runtime.agent.client.get_agent", lambda: SimpleNamespace(prepare=asked.append))
    dtlearn.load_ipython_extension(SimpleNamespace(register_magics=added.append))
    assert (asked, added) == (["kernel"], [RanksMagics, ExerciseMagics])
