import pytest

from dtlearn.pipeline_parallel import Action, Op


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("2F0", Action(2, Op.F, 0)),
        ("0B11", Action(0, Op.B, 11)),
        ("13I2", Action(13, Op.I, 2)),
        ("0W0", Action(0, Op.W, 0)),
    ],
)
def test_an_action_is_read_and_printed_as_torch_does(text, action):
    assert Action.parse(text) == action
    assert str(action) == text and f"{action}" == text
    assert action.op == text.strip("0123456789")  # a string, so that "F" may be compared with it


@pytest.mark.parametrize("text", ["", "F0", "2F", "2X0", "2f0", "-1F0", "2F0 ", "2F0,", "2F-1", "2SEND_F0", "²F0"])
def test_what_is_no_action_is_told(text):
    with pytest.raises(ValueError, match="as in 2F0; got " + repr(text)[:2]):
        Action.parse(text)
