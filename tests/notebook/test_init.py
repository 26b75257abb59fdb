from types import SimpleNamespace

import dtlearn
from dtlearn.notebook.exercise import ExerciseMagics
from dtlearn.notebook.magics import RanksMagics


def test_loading_adds_the_magics_and_starts_the_agent_at_once(monkeypatch):
    asked, added = [], []
    monkeypatch.setattr("dtlearn.runtime.agent.client.get_agent", lambda: asked.append("agent"))
    dtlearn.load_ipython_extension(SimpleNamespace(register_magics=added.append))
    assert (asked, added) == (["agent"], [RanksMagics, ExerciseMagics])
