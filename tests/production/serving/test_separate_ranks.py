"""One job with three roles: nobody waits for another role, and each has the checkpoint that it should."""

from pathlib import Path

import pytest
import torch

import dtlearn
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss
from dtlearn.production.serving.generate import generate
from dtlearn.production.serving.rank_roles import RankRoles
from dtlearn.production.serving.role_timeline import SeparateRun
from dtlearn.production.serving.separate_ranks import (
    SeparateJob,
    play_role,
    request_number,
    run_separate_ranks,
    validation_loss,
)
from dtlearn.train.checkpoint import checkpoint_file, read_checkpoint
from tests.devices import run_ranks

CONFIG = GPTConfig(num_layers=1, num_heads=2, hidden_size=16, context_length=16)
SLOW = 0.3  # seconds of an evaluation: steps are far shorter


def job(folder, **changes):
    options = {"steps": 6, "checkpoint_every": 2, "batch_size": 4, "new_tokens": 4, "evaluation_seconds": SLOW}
    return SeparateJob(str(folder), CONFIG, **options | changes)


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """The job, what came of it, and its record."""
    work = job(tmp_path_factory.mktemp("beside"))
    run = dtlearn.run_ranks(play_role, 4, RankRoles(), work, record=True, device="cpu")
    return work, SeparateRun(RankRoles(), tuple(run)), run.record


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    work = job(tmp_path_factory.mktemp("inline"), evaluation="inline", new_tokens=0)
    return run_separate_ranks(RankRoles(2, 0, 0), work, device="cpu")


def loaded(work, step):
    model = GPT(CONFIG)
    model.load_state_dict(read_checkpoint(checkpoint_file(Path(work.folder), step))["model"])
    return model


def test_training_is_that_of_one_process(beside):
    work, run, _ = beside
    torch.manual_seed(work.seed)
    model = GPT(CONFIG)
    optimizer, losses = torch.optim.AdamW(model.parameters(), work.lr), []
    for inputs, targets in load_corpus().batches(work.steps, work.batch_size, CONFIG.context_length, seed=work.seed):
        optimizer.zero_grad()
        loss = next_token_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert list(run.losses) == pytest.approx(losses, rel=1e-5)
    assert run.outcomes[1].losses == run.losses


def test_every_checkpoint_is_evaluated_wherever_that_is_done(beside, inline):
    work, run, _ = beside
    assert run.evaluations == inline.evaluations == {s: validation_loss(loaded(work, s), work) for s in (2, 4, 6)}


def test_no_message_crosses_roles(beside):
    """After the groups are made, training's collectives are the only calls, and nobody else is in them."""
    _, _, record = beside
    calls = [event for event in record if event.op not in ("new_group", "barrier")]
    assert {event.rank for event in calls} == {0, 1} and {event.group for event in calls} == {"0,1"}


def test_training_goes_on_while_others_evaluate(beside, inline):
    _, run, _ = beside
    first, *_ = run.select("evaluate")
    assert first.seconds >= SLOW
    # Inline, no step of the evaluating rank can be under way meanwhile. Beside, training does not look at evaluation.
    own = SeparateRun(inline.roles, inline.outcomes[:1])
    assert own.at_once("step", "evaluate") == 0
    assert sum(inline.step_seconds) >= 2 * SLOW  # two of the three lie between steps
    saves = [save.start for save in run.select("save")]  # a checkpoint is there a moment before its save has ended
    starts = [event.start for event in run.select("evaluate")]
    assert all(start > saved for start, saved in zip(starts, saves, strict=True))


def test_answers_are_those_of_the_newest_checkpoint_at_their_request(beside):
    work, run, _ = beside
    saved = {event.step: event.end for event in run.select("save")}
    answered = run.select("answer")
    assert [answer.step for answer in run.answers] == [event.step for event in answered]
    for answer, before in zip(run.answers, [None, *answered[:-1]], strict=True):
        (text,) = generate(loaded(work, answer.step), [request_number(work, answer.request)])
        assert answer.tokens == tuple(text)
        if before is not None:  # the server looked after this moment, so what was whole then it has seen
            assert answer.step >= max(step for step, end in saved.items() if end <= before.end or step == 2)
    assert run.answers[-1].step == 6  # the last one


def test_a_folder_with_a_run_is_refused(beside):
    work, *_ = beside
    with pytest.raises(ValueError, match="holds a run already: choose an empty folder"):
        run_separate_ranks(RankRoles(), work)


def test_who_is_too_slow_misses_checkpoints_and_training_does_not_wait(tmp_path):
    work = job(tmp_path, keep=1, steps=8, new_tokens=0, evaluation_seconds=0.5)
    run = run_separate_ranks(RankRoles(1, 1, 0), work, device="cpu")
    assert len(run.losses) == 8 and set(run.evaluations) <= {2, 4, 6, 8} and run.evaluations[8]
    assert [file.name for file in tmp_path.glob("step-*.pt")] == ["step-00000008.pt"]


def test_evaluating_ranks_take_turns(tmp_path):
    run = run_separate_ranks(RankRoles(1, 2, 0), job(tmp_path, new_tokens=0, evaluation_seconds=0.0), device="cpu")
    assert [sorted(own.evaluations) for own in run.outcomes] == [[], [4], [2, 6]]


def test_roles_run_on_a_device(device, tmp_path):
    small = {"steps": 2, "evaluation_seconds": 0.0}
    roles, there, here = RankRoles(2, 1, 1), job(tmp_path / "there", **small), job(tmp_path / "here", **small)
    Path(there.folder).mkdir()
    run = SeparateRun(roles, tuple(run_ranks(play_role, 4, roles, there, device=device)))
    beside_cpu = run_separate_ranks(roles, here, device="cpu")
    assert list(run.losses) == pytest.approx(beside_cpu.losses, rel=1e-4)
    assert run.evaluations == pytest.approx(beside_cpu.evaluations, rel=1e-4) and run.answers[-1].step == 2
