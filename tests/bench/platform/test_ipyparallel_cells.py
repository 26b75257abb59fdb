"""The peer of our cells; its engines are tried where it is installed."""

import pytest

from dtlearn.bench.platform import ipyparallel_cells


def test_whether_it_is_installed_is_seen(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", {"ipyparallel": None}.get)
    assert not ipyparallel_cells.installed()
    monkeypatch.setattr("importlib.util.find_spec", {"ipyparallel": "a spec"}.get)
    assert ipyparallel_cells.installed()


@pytest.mark.filterwarnings("ignore")
def test_its_engines_are_in_one_group_and_end():
    pytest.importorskip("ipyparallel")
    engines = ipyparallel_cells.Engines(2)
    try:
        assert 0 < engines.seconds("total = torch.ones(1); dist.all_reduce(total); assert total.item() == 2") < 20
        with pytest.raises(Exception, match="AssertionError"):
            engines.seconds("assert total.item() == 1")
    finally:
        engines.close()
