import pytest
import torch

from dtlearn.grading.check import Case, Check, Mistake, Stress
from dtlearn.grading.judging.compare import compare, difference


def check_with(**options) -> Check:
    return Check(on_rank=lambda answer: None, inputs=lambda case: [], expected=lambda case, given: [], **options)


def compared(expected, got, given=None, **options):
    case = Case("a case", len(expected), seed=0)
    given = given or [{"x": torch.full((2, 2), -77.0)} for _ in expected]
    return compare(check_with(**options), case, given, expected, got)


def tensors(world_size, *shape):
    g = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=g) for _ in range(world_size)]


def test_equal_results_pass_within_the_tolerance():
    right = tensors(3, 4, 2)
    assert compared(right, [t * (1 + 1e-6) for t in right]) is None
    assert compared(right, [t * (1 + 1e-3) for t in right]).code == "DTL-VALUE"
    assert compared(right, [t * (1 + 1e-3) for t in right], rtol=1e-2) is None


def test_the_ranks_that_are_wrong_are_named():
    right = tensors(4, 5)
    off = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0])
    found = compared(right, [right[0], right[1] + off, right[2], right[3] + 2 * off])
    assert (found.code, found.rank) == ("DTL-VALUE", 1)
    assert "1 of 5 elements of the result are wrong; the first, at (2,), should be" in found.text
    assert "(on rank 1; wrong on rank 3 too)" in found.text and "other ranks are right" in found.advice


@pytest.mark.parametrize(
    ("wrong", "code", "says", "advice"),
    [
        (lambda t: t * 4, "DTL-VALUE-FACTOR", "exactly 4x the reference on every rank; 4 is the world size", "summed"),
        (lambda t: t / 4, "DTL-VALUE-FACTOR", "exactly 1/4 of the reference", "divided once too often"),
        (lambda t: t * 8, "DTL-VALUE-FACTOR", "8 is the number of rows", ""),
        (lambda t: -t, "DTL-VALUE-SIGN", "the wrong sign on every rank", ""),
        (lambda t: t * 3, "DTL-VALUE", "elements of the result are wrong", ""),
        (lambda t: t.T.contiguous(), "DTL-VALUE-TRANSPOSED", "transposed on rank 0", ""),
        (lambda t: torch.cat([t[1:], t[:1]]), "DTL-VALUE-PERMUTED", "in the order [1, 2, 3, 0] on rank 0", ""),
        (lambda t: t * float("nan"), "DTL-VALUE-NAN", "16 of 16 elements of the result are NaN", "0 / 0"),
        (lambda t: t[:3], "DTL-VALUE-SHAPE", "should have the shape (4, 4); it has (3, 4)", ""),
        (lambda t: t.double(), "DTL-VALUE-DTYPE", "should be torch.float32; it is torch.float64", ""),
        (lambda t: None, "DTL-VALUE-NONE", "the result is None", "return"),
        (lambda t: 3.0, "DTL-VALUE-TYPE", "should be a tensor; it is a number", ""),
        (lambda t: [t], "DTL-VALUE-TYPE", "should be a tensor; it is a list", ""),
    ],
)
def test_what_is_wrong_on_every_rank_is_named(wrong, code, says, advice):
    right = tensors(4, 4, 4)
    found = compared(right, [wrong(t) for t in right], factors=lambda case: {8: "the number of rows"})
    assert found.code == code and says in found.text, found
    assert (advice in found.advice) if advice else not found.advice


def test_a_transposed_shape_is_named():
    right = tensors(2, 3, 2)
    assert compared(right, [t.T.contiguous() for t in right]).code == "DTL-VALUE-TRANSPOSED"


def test_nan_that_is_expected_is_right_and_nan_under_poison_means_too_early():
    right = [torch.tensor([1.0, float("nan")])] * 2
    assert compared(right, right) is None
    found = compared([torch.ones(2)] * 2, right, stress=Stress(poison=True))
    assert found.code == "DTL-VALUE-NAN" and "before wait()" in found.advice


@pytest.mark.parametrize("world_size", [2, 3, 4, 6])
def test_right_values_on_the_wrong_ranks_are_named(world_size):
    right = tensors(world_size, 3)
    found = compared(right, right[1:] + right[:1])
    assert found.code == "DTL-VALUE-PERMUTED" and "rank 0 has rank 1's" in found.text


def test_a_rank_that_nothing_reached_is_named():
    right, own = [torch.ones(3)] * 4, tensors(4, 3)
    found = compared(right, [right[0], own[1], right[2], own[3]], given=[{"x": t} for t in own])
    assert (found.code, found.rank) == ("DTL-VALUE-STALE", 1)
    assert "ranks 1 and 3 still has" not in found.text and "still have their own x" in found.text


def test_a_result_on_one_rank_only_is_named():
    right = [torch.ones(3)] * 4
    found = compared(right, [right[0], *tensors(3, 3)])
    assert found.code == "DTL-VALUE-ONE-RANK" and "only rank 0 has the right result" in found.text


def test_known_mistakes_come_first_also_those_of_another_shape():
    right = [torch.tensor([1.0, 2.0])] * 2
    known = [Mistake("DTL-VALUE-MINE", "half of it is missing", [torch.tensor([1.0])] * 2)]
    found = compared(right, [torch.tensor([1.0])] * 2, mistakes=lambda case, given: known)
    assert (found.code, found.text) == ("DTL-VALUE-MINE", "half of it is missing")
    # On one rank alone it is not that mistake.
    assert compared(right, [torch.tensor([1.0]), right[1]], mistakes=lambda c, g: known).code == "DTL-VALUE-SHAPE"


def test_a_zero_result_has_no_factor_sign_or_order():
    right = [torch.zeros(4)] * 4
    assert compared(right, [torch.ones(4)] * 4).code == "DTL-VALUE"


@pytest.mark.parametrize(
    ("expected", "got", "code", "says"),
    [
        (2, "2", "DTL-VALUE-TYPE", "should be a whole number; it is a text"),
        (True, 1, "DTL-VALUE-TYPE", "should be a truth value; it is a whole number"),
        (1, True, "DTL-VALUE-TYPE", "should be a whole number; it is a truth value"),
        (None, 3, "DTL-VALUE-TYPE", "should be None; it is a whole number"),
        ("a", "b", "DTL-VALUE", "should be 'a'; it is 'b'"),
        (3, 4, "DTL-VALUE", "should be 3; it is 4"),
        (3, 10**30, "DTL-VALUE", f"it is {10**30}"),
        (0.5, 10**400, "DTL-VALUE", "should be 0.5"),
        (0.5, float("nan"), "DTL-VALUE-NAN", "the result is NaN"),
        (0.5, float("inf"), "DTL-VALUE", "should be 0.5; it is inf"),
        (float("inf"), 0.5, "DTL-VALUE", "should be inf; it is 0.5"),
        ([1, 2], [1], "DTL-VALUE-SHAPE", "should have 2 parts; it has 1"),
        ([1, 2], "12", "DTL-VALUE-TYPE", "should be a list of 2; it is a text"),
        ({"a": 1}, {"b": 1}, "DTL-VALUE-SHAPE", "should have the keys ['a']; it has ['b']"),
        ({1: 1}, {"1": 1}, "DTL-VALUE-SHAPE", "should have the keys [1]; it has ['1']"),
        ({"a": [1]}, {"a": [2]}, "DTL-VALUE", "the result['a'][0] should be 1; it is 2"),
        ({"a": 1}, {"a": None}, "DTL-VALUE-NONE", "the result['a'] is None"),
        ({"a": 1}, 5, "DTL-VALUE-TYPE", "should be a dict; it is a whole number"),
        (torch.tensor(1.0), torch.tensor(2.0), "DTL-VALUE", "the result should be 1; it is 2"),
        (2.0, torch.tensor(2.0), "DTL-VALUE-TYPE", "the result should be a number; it is a tensor"),
        (torch.tensor([True]), torch.tensor([False]), "DTL-VALUE", "1 of 1 elements"),
        (torch.tensor([1j]), torch.tensor([2j]), "DTL-VALUE", "1 of 1 elements"),
        (torch.tensor([3]), torch.tensor([4]), "DTL-VALUE", "should be 3 and is 4"),
    ],
)
def test_differences_say_where_and_what(expected, got, code, says):
    found = difference(expected, got, 1e-5, 1e-6)
    assert found.code == code and says in found.text, found


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (2.0, 2),
        (float("inf"), float("inf")),
        (float("nan"), float("nan")),
        ((1, 2), [1, 2]),
        (None, None),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_equal_things_are_equal(expected, got):
    assert difference(expected, got, 1e-5, 1e-6) is None


def test_long_values_are_cut():
    assert len(difference("a", "b" * 10_000, 0, 0).text) < 300
    assert len(difference({"a": 1}, dict.fromkeys(range(10_000)), 0, 0).text) < 300


def test_of_one_rank_it_is_not_said_on_which():
    assert compared([3.0], [4.0]).text == "the result should be 3; it is 4"
    assert compared([3.0], [-3.0]).text == "the result has the wrong sign"
    assert compared([{"a": 1}], [{"a": 2}]).text == "the result['a'] should be 1; it is 2"
