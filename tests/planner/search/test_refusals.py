"""What is said if a search finds nothing: the true cause, and remedies that go."""

import re

import pytest

from dtlearn.planner import Constraints, find_model, parse_cluster, search_layouts


def refusal(model="bloom", cluster="384xA100-80GB", batch=2048, length=0, **asked):
    with pytest.raises(ValueError) as error:
        search_layouts(find_model(model), parse_cluster(cluster), batch, length, Constraints(**asked))
    return str(error.value)


def test_the_remedy_of_a_dp_is_the_dp_that_goes():
    text = refusal(tp=4, pp=12, dp=7)
    assert text == (
        "tp 4 x pp 12 x dp 7 multiply to 336, which does not divide 384 ranks. What would go, with the rest as asked: "
        "dp 8"
    )
    assert refusal(dp=7).startswith("dp 7 does not divide 384 ranks. What would go, with the rest as asked: dp 4 or 8")
    assert search_layouts(find_model("bloom"), parse_cluster("384xA100-80GB"), 2048, 0, Constraints(dp=8))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"tp": 5}, "112 heads do not divide by tp 5"),
        ({"pp": 16}, "70 layers do not divide by pp 16, nor do 72"),
        (
            {"microbatch": 3},
            "no layout of 384 ranks has microbatch 3; the nearest, tp 1 x pp 1 x dp 384: a batch of 2048",
        ),
        ({"cp": 3}, r"2048 tokens do not divide by cp 3 \(two chunks a rank\)"),
        ({"virtual_stages": 11, "tp": 8}, "11 chunks"),
    ],
)
def test_a_number_that_does_not_go_is_named(asked, says):
    assert re.search(says, refusal(**asked))


@pytest.mark.parametrize(
    "asked", [{"pp": 16}, {"tp": 4, "pp": 12, "dp": 7}, {"microbatch": 3}, {"tp": 16, "pp": 24, "dp": 2}]
)
def test_every_remedy_goes(asked):
    """It divides; whether it fits the memory is another question."""
    remedies = re.findall(r"(\w+) (\d+)(?: or (\d+))?", refusal(**asked).split("as asked: ")[1])
    assert remedies
    for name, *values in remedies:
        for value in filter(None, values):
            try:
                search_layouts(
                    find_model("bloom"),
                    parse_cluster("384xA100-80GB"),
                    2048,
                    0,
                    Constraints(**asked | {name: int(value)}),
                )
            except ValueError as error:
                assert "fits nowhere" in str(error)


def test_chunks_that_do_not_go_are_not_said_to_be_the_batchs_fault():
    text = refusal("gpt-3", "64xA100", 64, virtual_stages=5)
    assert "5 chunks" in text and "batch" not in text
    assert "virtual_stages 4 or 6" in text


@pytest.mark.parametrize(
    ("batch", "length", "says"),
    [
        (0, 0, "batch must be a whole number of 1 or more; got 0"),
        (8.0, 0, "batch must be a whole number of 1 or more; got 8.0"),
        (10**30, 0, "batch must be 1,000,000,000 at most"),
        (2048, -1, "length must be a whole number of 0 or more; got -1"),
    ],
)
def test_no_batch_and_no_length_are_said_as_such(batch, length, says):
    assert says in refusal(batch=batch, length=length)


def test_a_batch_of_one_that_nothing_takes():
    assert refusal("gpt-3", "64xA100", 7).startswith("no layout of 64 ranks takes a batch of 7: dp x micro-batch must")
