"""The notation, read and written; what it means on a rank; and what means nothing."""

import pytest

from dtlearn.tensor_parallel.notation.sharded import Sharded, parse


@pytest.mark.parametrize(
    "text", ["A[I, J]", "A[I_t, J]", "y[B, T, C] {U_t}", "x[B_dp, T, C_tp]", "C[I_x, K] {U_y, U_z}"]
)
def test_read_and_written(text):
    assert str(parse(text)) == text
    assert parse(f"  {text.replace(', ', ' ,')} ") == parse(text)


def test_as_data():
    array = parse("h[B, T, F_t]")
    assert array == Sharded("h", ("B", "T", "F"), (None, None, "t"))
    assert array.axis_of("F") == "t" and array.axis_of("B") is None
    assert array.divided_dim("t") == "F" and array.divided_dim("dp") is None
    assert parse("y[B, C] {U_t}").partial == ("t",)


def test_changes():
    partial = parse("C[I, K] {U_t}")
    assert str(partial.reduced("t")) == "C[I, K]" and str(partial.divided("K", "t")) == "C[I, K_t]"
    assert str(parse("A[I_t, J_x]").gathered("I")) == "A[I, J_x]"


def test_the_words_of_dtensor():
    words = {"A[I_t, J]": "Shard(0)", "A[I, J_t]": "Shard(1)", "A[I, J]": "Replicate()", "A[I, J] {U_t}": "Partial()"}
    assert {text: parse(text).placement("t") for text in words} == words
    assert parse("A[I_dp, J_t]").placement("dp") == "Shard(0)"


def test_what_a_rank_holds():
    sizes, num_ranks = {"B": 4, "T": 6, "C": 8}, {"dp": 2, "t": 4}
    shapes = {
        text: parse(text).local_shape(sizes, num_ranks) for text in ("x[B_dp, T, C_t]", "x[B, T, C] {U_t}", "x[T, C_t]")
    }
    assert shapes == {"x[B_dp, T, C_t]": (2, 6, 2), "x[B, T, C] {U_t}": (4, 6, 8), "x[T, C_t]": (6, 2)}
    with pytest.raises(ValueError, match="6 elements of dim T cannot be divided among 4 ranks"):
        parse("x[B, T_t]").local_shape(sizes, num_ranks)


@pytest.mark.parametrize("text", ["", "A", "A[]", "A[I J]", "A[I, J] {t}", "A[I_, J]", "[I]", "A[I] U_t", "A[I_t_x]"])
def test_what_is_not_the_notation(text):
    with pytest.raises(ValueError, match='an array is written as "A'):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A[I_t, J_t]", "uses axis t twice: along one axis an array is divided by one dim, or is partial"),
        ("A[I_t, J] {U_t}", "uses axis t twice"),
        ("A[I, I]", "has two dims of the name I"),
    ],
)
def test_what_means_nothing(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_dims_that_are_not_there():
    for use in (lambda: parse("A[I]").axis_of("J"), lambda: parse("A[I]").gathered("J")):
        with pytest.raises(ValueError, match=r"A\[I\] has no dim J"):
            use()
    with pytest.raises(ValueError, match="needs dims, and an axis or None for each"):
        Sharded("A", ("I", "J"), ("t",))
