"""The loop: it runs anywhere, says what it does, and divides the batch."""

import pytest
import torch

from dtlearn.libraries.hello_deepspeed import loop
from dtlearn.libraries.hello_deepspeed.loop import about, filled_in, own_micro_batches_of, train
from dtlearn.libraries.hello_deepspeed.masked_text import MASK, MaskedBatch, masked_batch
from dtlearn.models import load_corpus
from tests.libraries.hello_deepspeed.runs import small

CORPUS = load_corpus()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(loop, "has_deepspeed", lambda: False)


def test_without_a_launcher_it_trains_alone_and_leaves_no_group():
    run = train(small(steps=40, batch_size=32, lr=0.01))
    assert run.losses[0] > 4.5 > 4 > run.losses[-1]
    assert run.validation < 4
    assert not torch.distributed.is_initialized()


def test_without_deepspeed_the_twin_runs_and_says_so(nothing_installed):
    said = list[str]()
    assert train(small(engine="auto", zero=2), said.append).engine == "plain"
    assert "not installed" in said[0] and "the plain twin runs" in said[0]
    assert said[1] == "plain torch: 1 rank on cpu, fp32" and "the one rank holds all" in said[2]
    assert said[3].startswith("step     4  loss ") and said[4].startswith("loss on held-out text")


def test_where_the_state_lies_is_said_to_those_who_asked():
    cpu = torch.device("cpu")
    (line,) = about(small(zero=1), "plain", 2, cpu)  # nobody typed the default
    assert line == "plain torch: 2 ranks on cpu, fp32"
    assert "every rank holds all" in list(about(small(zero=2), "plain", 2, cpu))[1]
    assert "every rank holds all" in list(about(small(offload=True, zero=1), "plain", 2, cpu))[1]


def test_a_context_longer_than_the_text_is_refused_before_a_model_is_made():
    with pytest.raises(ValueError, match=r"context_length must be \d+ or less, all of the text; got 100000000"):
        train(small(context_length=10**8))


def test_a_folder_that_cannot_be_made_is_refused_before_training(tmp_path):
    (tmp_path / "file").touch()
    said = list[str]()
    with pytest.raises(ValueError, match="cannot be written to"):
        train(small(checkpoint_dir=str(tmp_path / "file")), said.append)
    assert said == []


def test_deepspeed_that_is_asked_for_and_not_there_is_refused(nothing_installed):
    with pytest.raises(ValueError, match=r"not installed for this Python\. .*make libraries.*Or take the engine plain"):
        train(small(engine="deepspeed"))


def test_the_ranks_rows_are_the_batch_in_order():
    batch = masked_batch(CORPUS.train, 0, 12, 16, seed=0)
    device = torch.device("cpu")
    parts = [part for rank in range(2) for part in own_micro_batches_of(batch, rank, 2, 3, device)]
    assert len(parts) == 6
    assert torch.equal(torch.cat([part.targets for part in parts]), batch.targets)


def test_guesses_stand_where_the_masks_were():
    tokens = CORPUS.encode("a word")
    inputs = tokens.clone()
    inputs[2] = MASK
    logits = torch.zeros(1, 2, 128)
    logits[0, 0, CORPUS.encode("l")] = 1
    batch = MaskedBatch(inputs[None], torch.tensor([[2, 5]]), tokens[[2, 5]][None])  # place 5 was left as it is
    assert filled_in(CORPUS, batch, logits, 0) == "'a ·ord'\n  'a lord'"
