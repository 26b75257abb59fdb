"""Options: what each may be, and what the task fills in."""

import pytest

from dtlearn.train.options import CHOICES, LEAST, Options, flag, make_parser, parse, settle
from dtlearn.train.ranks.rank_0 import TrainError
from dtlearn.train.task import Defaults

DEFAULTS = Defaults(epochs=3, batch_size=8, lr=0.5, warmup=2)


@pytest.mark.parametrize("name", CHOICES)
def test_another_choice_is_refused(name):
    for choice in CHOICES[name]:
        Options(**{name: choice}).check()
    with pytest.raises(TrainError, match=f"{flag(name)} must be one of .*; got 'other'"):
        Options(**{name: "other"}).check()


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_a_number_below_the_least_is_refused(name, least):
    Options(**{name: least}).check()
    with pytest.raises(TrainError, match=f"{flag(name)} must be {least} or more; got {least - 1}"):
        Options(**{name: least - 1}).check()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": 0.0}, "--lr must be more than 0; got 0.0"),
        ({"clip": float("nan")}, "--clip must be more than 0; got nan"),
        ({"max_steps": 0}, "--max-steps must be more than 0; got 0"),
        ({"dropout": 1.0}, "--dropout must be 0 or more, and less than 1; got 1.0"),
        ({"dropout": -0.1}, "--dropout must be 0 or more, and less than 1; got -0.1"),
        ({"resume": ""}, "--resume must be auto, none, or the path of a checkpoint"),
    ],
)
def test_what_no_run_can_have_is_refused(wrong, message):
    Options(lr=1e-9, clip=1e-9, max_steps=1, dropout=0.99, resume="a.pt").check()
    with pytest.raises(TrainError) as refused:
        Options(**wrong).check()
    assert str(refused.value) == message


def test_the_task_fills_in_what_was_left_to_it():
    settings = settle(Options(task="text", lr=0.25, warmup=0), DEFAULTS)
    assert (settings.epochs, settings.batch_size, settings.lr, settings.warmup) == (3, 8, 0.25, 0)
    assert (settings.task, settings.clip, settings.max_steps, settings.log_dir) == ("text", None, None, None)


def test_a_command_line_without_options_is_the_dataclass_without_arguments():
    assert parse([]) == Options()
    assert set(vars(make_parser().parse_args([]))) == set(vars(Options()))
    assert parse(["--max-steps", "3", "--amp", "--checkpoint-dir", "a"]) == Options(
        max_steps=3, amp=True, checkpoint_dir="a"
    )
