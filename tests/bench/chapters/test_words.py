import pytest

from dtlearn.bench.chapters import words


def test_the_load_before_and_after(monkeypatch):
    monkeypatch.setattr(words, "load_line", lambda: "2 cores, load 2.0")
    assert words.load_since("2 cores, load 1.0") == "2 cores, load 1.0, afterwards load 2.0"
    assert words.noisy("2 cores").startswith("2 cores; timings are noisy")


@pytest.mark.parametrize(("ranks", "said"), [(2, ""), (3, " More ranks than cores: they take turns.")])
def test_more_ranks_than_cores_is_said(monkeypatch, ranks, said):
    monkeypatch.setattr(words, "num_cores", lambda: 2)
    assert words.if_more_than_cores(ranks) == said


def test_targets_are_met_or_missed():
    assert (words.met(True), words.met(False)) == ("met", "missed")
