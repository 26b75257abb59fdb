"""`--compress`: each method learns, a run that stopped goes on bit by bit, and what cannot be done is refused."""

import dataclasses

import pytest
import torch

from dtlearn.train import Options, TrainError, compression, train
from dtlearn.train.checkpoint import checkpoints_in, read_checkpoint
from dtlearn.train.options import CHOICES
from tests.devices import run_ranks
from tests.train.test_checkpoint import in_three_parts, losses_of

METHODS = CHOICES["compress"][1:]
KEEPS = ("topk", "sign", "qsgd", "powersgd")  # something from step to step


def every_method(folder):
    """Each method's whole run, and the one in parts; and the digests of runs that resume without the hook's state."""
    runs = {
        method: in_three_parts(Options(compress=method, accumulate=2, clip=1.0), f"{folder}/{method}")
        for method in METHODS
    }
    forgets = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dtlearn.train.state.load_hook_state", lambda *args: [])
        for method in KEEPS:
            options = Options(compress=method, accumulate=2, clip=1.0)
            forgets[method] = in_three_parts(options, f"{folder}/{method} forgets")[1][-1].digest
    return runs, forgets


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    return run_ranks(every_method, 2, str(folder), device="cpu", timeout=110), folder


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_went_on_is_the_one_that_never_stopped(method, run):
    results, _ = run
    for runs, _ in results:
        whole, parts = runs[method]
        assert losses_of(parts) == whole.losses
        assert parts[-1].digest == whole.digest
    assert len({runs[method][0].digest for runs, _ in results}) == 1  # every rank has the same mean


@pytest.mark.parametrize("method", KEEPS)
def test_a_state_that_is_left_out_shows(method, run):
    for runs, forgets in run[0]:
        assert forgets[method] != runs[method][0].digest


def test_each_method_sends_something_else(run):
    digests = {runs[method][0].digest for runs, _ in run[0] for method in METHODS}
    assert len(digests) == len(METHODS)


def test_a_checkpoint_holds_what_each_rank_has_not_sent(run):
    _, folder = run
    state = read_checkpoint(checkpoints_in(folder / "topk")[0])
    first, second = (kept["feedback"]["residuals"] for kept in state["compression"])
    assert set(first) == set(state["model"])
    assert not any(torch.equal(first[name], second[name]) for name in first)
    assert read_checkpoint(checkpoints_in(folder / "fp16")[0])["compression"] == [None, None]


def test_on_other_ranks_what_was_kept_is_lost_and_that_is_said(run):
    _, folder = run
    options = Options(compress="topk", checkpoint_dir=str(folder / "topk"), max_steps=21, resume="auto")
    after = run_ranks(train, 3, dataclasses.replace(options, accumulate=1), device="cpu")
    assert "what 2 ranks had not sent yet is lost: on 3 ranks compression begins without it" in after.output[0]


def test_another_method_begins_anew_and_that_is_said(run):
    _, folder = run
    options = Options(compress="sign", checkpoint_dir=str(folder / "qsgd"), max_steps=21)
    assert "--compress qsgd -> sign" in run_ranks(train, 2, options, device="cpu").output[0]


def refused(options):
    with pytest.raises(TrainError) as error:
        train(options)
    return str(error.value)


def test_with_torchs_ddp_it_trains_but_is_not_resumed(tmp_path):
    options = Options(compress="sign", ddp="torch", max_steps=3)
    assert all(len(result.losses) == 3 for result in run_ranks(train, 2, options, device="cpu"))
    options = dataclasses.replace(options, checkpoint_dir=str(tmp_path))
    for message in run_ranks(refused, 2, options, device="cpu"):
        assert message.startswith("--compress sign with --ddp torch cannot be resumed: torch plans its buckets anew")
    run_ranks(train, 2, dataclasses.replace(options, compress="fp16"), device="cpu")  # keeps nothing: no matter


def test_one_process_alone_is_refused():
    assert refused(Options(compress="topk")).startswith("--compress topk: one process alone sends nothing")


def test_the_state_of_another_model_is_refused():
    state = compression.make_hook_state(compression_settings("topk"))
    saved = {
        "world_size": 1,
        "rank": 0,
        "step": 3,
        "generator": None,
        "feedback": {"residuals": {"gone": torch.zeros(3)}},
    }

    def load():
        with pytest.raises(TrainError) as error:
            compression.load_hook_state(state, torch.nn.Linear(2, 2), [saved], 0, 1)
        return str(error.value)

    assert "the checkpoint's compression is another one: the state is of another model" in run_ranks(load, 1)[0]


def compression_settings(method):
    from dtlearn.train.options import settle
    from dtlearn.train.task import Defaults

    return settle(Options(compress=method), Defaults(epochs=1, batch_size=8, lr=0.1, warmup=0))


def test_on_another_device(other_device, tmp_path):
    options = Options(compress="topk", max_steps=3, checkpoint_dir=str(tmp_path))
    first = run_ranks(train, 2, options, device=other_device)
    again = run_ranks(train, 2, dataclasses.replace(options, max_steps=5), device=other_device)
    assert first[0].step == 3 and again[0].step == 5 and again[0].digest == again[1].digest
