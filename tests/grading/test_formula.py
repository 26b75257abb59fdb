import pytest

from dtlearn.grading.formula import evaluate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16", 16),
        ("2*(N-1)/N*n", 150),
        ("ceil(log2(N))", 2),
        ("max(2, N-1)", 3),
        ("min(n, 7)", 7),
        ("-N + 2**3", 4),
        ("n // 3", 33),
    ],
)
def test_formulas_have_values(text, value):
    assert evaluate(text, N=4, n=100) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2*",
        "M",
        "__import__('os')",
        "N.real",
        "[N]",
        "'a'",
        "True and N",
        "print(N)",
        "max(N, key=1)",
        "N if N else 1",
        "(lambda: 1)()",
        "n := 3",
        "True",
        "1j",
        "N < 2",
    ],
)
def test_all_else_is_refused(text):
    with pytest.raises(ValueError):
        evaluate(text, N=4, n=100)


@pytest.mark.parametrize("text", ["n/(N-4)", "log2(0)", "10.0**1000"])
def test_what_has_no_value_says_so(text):
    with pytest.raises(ValueError):
        evaluate(text, N=4, n=100)
