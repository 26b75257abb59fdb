import pytest

from dtlearn.production.serving.requests import GenerationRequest, require_room


def test_a_request_is_done_after_its_tokens_or_its_last_one():
    request = GenerationRequest((1,), 3, stop_token=7)
    assert [request.is_done(text) for text in ([], [1], [1, 7], [7, 1], [1, 1, 1])] == [False, False, True, False, True]


def test_the_last_token_takes_no_position():
    assert GenerationRequest((1, 2), 3).length == 4
    require_room([GenerationRequest((1, 2), 3)], 4)
    with pytest.raises(ValueError, match=r"request 1 needs 5 positions \(3 of its prompt and 3 new tokens less one\)"):
        require_room([GenerationRequest((1, 2), 3), GenerationRequest((1, 2, 3), 3)], 4)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"prompt": ()}, "at least one token"),
        ({"max_new_tokens": 0}, "1 or more; got 0"),
        ({"temperature": -1.0}, "0 .greedy. or more"),
        ({"temperature": float("nan")}, "0 .greedy. or more"),
        ({"arrival": -1}, "arrival"),
    ],
)
def test_a_wrong_request_is_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        GenerationRequest(**{"prompt": (1,), "max_new_tokens": 1} | wrong)
    with pytest.raises(ValueError, match="no request"):
        require_room([], 4)
