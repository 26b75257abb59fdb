import pytest

from dtlearn.pipeline_parallel import Action, Op, Schedule, format_schedule, parse_schedule
from dtlearn.pipeline_parallel.text import rows_of, text_of

TWO_STAGES = """
0F0 0F1 .   0B0 0B1
.   1F0 1B0 1F1 1B1
"""


def test_text_is_read_and_printed():
    schedule = parse_schedule(TWO_STAGES, name="mine")
    assert schedule.name == "mine" and schedule.num_microbatches == 2 and schedule.placement == (0, 1)
    assert schedule.orders[1] == (Action(1, Op.F, 0), Action(1, Op.B, 0), Action(1, Op.F, 1), Action(1, Op.B, 1))
    assert format_schedule(schedule) == "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"
    assert parse_schedule(format_schedule(schedule), name="mine") == schedule


def test_commas_and_idle_ranks():
    assert parse_schedule("0F0, 0F1,,0B0,0B1\n1F0,1B0,1F1,1B1").orders == parse_schedule(TWO_STAGES).orders
    idle = Schedule("idle", 1, (0,), ((Action(0, Op.F, 0),), ()))
    assert format_schedule(idle) == "0F0\n."
    assert parse_schedule(format_schedule(idle), name="idle") == idle


def test_a_wrong_schedule_is_read_as_it_stands():
    """A backward pass is on the wrong rank, and a forward pass is missing: that is for the validator."""
    schedule = parse_schedule("0F0 1B1 0B0\n1F0 1B0 1F1", num_microbatches=4)
    assert schedule.placement == (0, 1) and schedule.num_microbatches == 4
    assert parse_schedule("0F0\n1F0", placement=(1, 0)).placement == (1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0 0F1\n1F0 . 1X0", "rank 1, position 1: expected a stage, one of F, B, I and W.*got '1X0'"),
        ("0F0-0F1", "rank 0, position 0.*got '0F0-0F1'"),
        ("0F0\n2F0", "no rank has an action of stage 1"),
        ("99999999F0", "no rank has an action of stage 0"),
        ("  \n.", "got no actions"),
        ("", "got no actions"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text, message):
    with pytest.raises(ValueError, match=message):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", ()),
        ("\n \n", ()),
        ("0F0, 0B0 =\n\n.  1F0 . 1B0", (("0F0", "0B0"), ("1F0", "1B0"))),
        ("what? 0X\n.", (("what?", "0X"), ())),
    ],
)
def test_any_text_has_rows(text, rows):
    assert rows_of(text) == rows
    assert rows_of(text_of(rows)) == rows
