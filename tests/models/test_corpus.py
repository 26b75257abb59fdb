"""The corpus: shipped unchanged with its notice, tokens there and back, an honest split, the same batches always."""

import importlib.util
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from dtlearn.models import Corpus, GPTConfig, load_corpus
from dtlearn.models import corpus as corpus_file

ROOT = Path(__file__).resolve().parents[2]
DATA = files("dtlearn.models").joinpath("data")


@pytest.fixture(scope="module")
def corpus():
    return load_corpus()


@pytest.fixture(scope="module")
def make_corpus():
    spec = importlib.util.spec_from_file_location("make_corpus", ROOT / "tools" / "make_corpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_size_of_the_shipped_text(corpus):
    assert len(corpus.text) == 373_279
    assert corpus.vocab_size == len(set(corpus.text)) == 103


def test_notice_and_licence_lie_beside_the_text():
    notice = DATA.joinpath("python_reference_NOTICE.txt").read_text(encoding="utf-8")
    licence = DATA.joinpath("python_reference_LICENSE.txt").read_text(encoding="utf-8")
    assert "Python Software Foundation License Version 2" in notice and "Changes made" in notice
    years = ", ".join(str(year) for year in range(2001, 2024))
    for text in (notice, licence):
        assert f"Copyright (c) {years} Python Software Foundation; All Rights Reserved" in " ".join(text.split())
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in licence


def test_a_changed_text_is_refused(corpus):
    with pytest.raises(ValueError, match=r"has been changed.*reinstall dtlearn"):
        corpus_file.verified(corpus.text.replace("Python", "python", 1))


def test_a_missing_file_is_refused(monkeypatch):
    monkeypatch.setattr(corpus_file, "FILE_NAME", "absent.txt")
    with pytest.raises(ValueError, match=r"absent\.txt is missing"):
        load_corpus()


def test_windows_line_ends_are_read_as_the_same_text(corpus, monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / corpus_file.FILE_NAME).write_bytes(corpus.text.replace("\n", "\r\n").encode())
    monkeypatch.setattr(corpus_file, "files", lambda package: tmp_path)
    assert load_corpus().text == corpus.text


def test_tokens_there_and_back(corpus):
    tokens = corpus.encode(corpus.text)
    assert tokens.dtype == torch.int64 and tokens.min() == 0 and tokens.max() == 102
    assert corpus.decode(tokens) == corpus.text
    assert Corpus("banana").encode("ban").tolist() == [1, 0, 2]


def test_default_gpt_holds_the_vocabulary(corpus):
    assert corpus.vocab_size <= GPTConfig().vocab_size


def test_unknown_characters_and_tokens_are_refused(corpus):
    with pytest.raises(ValueError, match="'数' is not in the vocabulary"):
        corpus.encode("a数")
    for wrong in (-1, 103):
        with pytest.raises(ValueError, match="tokens must be from 0 to 102"):
            corpus.decode(torch.tensor([0, wrong]))


def test_train_and_validation_are_the_whole_text_in_order(corpus):
    assert corpus.decode(torch.cat([corpus.train, corpus.val])) == corpus.text
    assert len(corpus.val) == len(corpus.text) // 10


def test_validation_text_is_not_in_the_training_text(corpus):
    train_lines = set(corpus.decode(corpus.train).splitlines())
    val_lines = [line for line in corpus.decode(corpus.val).splitlines() if len(line) > 30]
    assert sum(line in train_lines for line in val_lines) / len(val_lines) < 0.01


def test_batches_are_windows_and_the_targets_are_one_character_later(corpus):
    for split, tokens in (("train", corpus.train), ("val", corpus.val)):
        text = corpus.decode(tokens)
        for x, y in corpus.batches(2, 3, 20, split=split):
            assert x.shape == y.shape == (3, 20)
            assert torch.equal(x[:, 1:], y[:, :-1])
            assert all(corpus.decode(torch.cat([row, last])) in text for row, last in zip(x, y[:, -1:], strict=True))


def test_batches_reach_the_last_character():
    small = Corpus("abcdefghij" * 2)  # 18 tokens to train with; windows of 17 can start in one place only
    ((x, y),) = small.batches(1, 1, 17)
    assert torch.equal(x[0], small.train[:-1]) and torch.equal(y[0], small.train[1:])


def test_batches_are_the_same_for_the_same_seed_only(corpus):
    first, again, other = (list(corpus.batches(3, 4, 16, seed=seed)) for seed in (0, 0, 1))
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])


@pytest.mark.parametrize(
    ("sizes", "split", "message"),
    [
        ((-1, 4, 16), "train", "num_batches >= 0"),
        ((1, 0, 16), "train", "batch_size >= 1"),
        ((1, 4, 0), "train", "context_length must be between 1 and"),
        ((1, 4, 37_327), "val", "context_length must be between 1 and 37326"),
        ((1, 4, 16), "test", 'split must be "train" or "val"'),
    ],
)
def test_wrong_sizes_are_refused_at_once(corpus, sizes, split, message):
    with pytest.raises(ValueError, match=message):
        corpus.batches(*sizes, split=split)


def test_the_tool_finds_the_shipped_file_right(make_corpus, capsys):
    assert make_corpus.main(["--check"]) == 0
    assert "python_reference.txt is right" in capsys.readouterr().out


@pytest.mark.parametrize("same_release", [True, False])
def test_the_tool_finds_a_changed_or_missing_file(make_corpus, corpus, monkeypatch, tmp_path, capsys, same_release):
    if not same_release:
        monkeypatch.setattr(make_corpus, "SOURCE_SHA256", "of another release")
        assert make_corpus.main([]) == 1  # it can't make the text
    monkeypatch.setattr(make_corpus, "PATH", tmp_path / "python_reference.txt")
    assert make_corpus.main(["--check"]) == 1
    make_corpus.PATH.write_text(corpus.text + "!", encoding="utf-8")
    assert make_corpus.main(["--check"]) == 1
    make_corpus.PATH.write_text(corpus.text, encoding="utf-8")
    assert make_corpus.main(["--check"]) == 0


def test_the_tool_leaves_out_topics_that_are_part_of_longer_ones(make_corpus):
    whole = "Loops\n*****\n\nFirst.\n\nSecond.\n\nMore\n****\n\nThird."
    part = "More\n====\n\nThird."  # the same section, its heading at another depth
    other = "First.\n\nFourth."
    assert make_corpus.make_corpus({"part": part, "whole": whole, "other": other}) == f"{whole}\n\n{other}\n"
