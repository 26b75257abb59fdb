import textwrap

import pytest
import torch

from dtlearn.grading import plain_values
from dtlearn.grading.on_rank.run_answer import AnswerSpec, BadResult, load_answer, run_answer, same


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    """As on a rank: what `run_answer` reads from the environment. No group: these answers send nothing."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")


def spec(source: str, inputs=None, driver="def on_rank(answer, **inputs):\n    return answer(**inputs)\n", **options):
    given = plain_values.dump({"x": torch.tensor([1.0, float("nan")])} if inputs is None else inputs)
    return AnswerSpec(textwrap.dedent(source), "exercises/ch01_ranks/f.py", "f", driver, given, **options)


def run(source: str, **options):
    return plain_values.load(run_answer(spec(source, **options)))


def test_the_result_comes_back_as_plain_data():
    result = run("def f(x):\n    return {'twice': 2 * x[0]}\n")
    assert result["value"]["twice"] == 2 and result["changed"] == []


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("x += 1", ["x"]),
        ("x[1] = 0.0  # was NaN", ["x"]),
        ("x.resize_(3)", ["x"]),
        ("y = x + 1", []),
        ("x.add_(0)", []),
    ],
)
def test_inputs_that_were_changed_are_named(body, changed):
    assert run(f"def f(x):\n    {body}\n")["changed"] == changed


def test_lists_that_were_emptied_are_named_unless_that_is_allowed():
    source = "def f(parts):\n    parts.pop()\n"
    assert run(source, inputs={"parts": [1, 2]})["changed"] == ["parts"]
    assert run(source, inputs={"parts": [1, 2]}, watch_inputs=False)["changed"] == []


def test_a_result_that_cannot_be_compared_is_said_to_be_so():
    with pytest.raises(BadResult, match="f: the result is of type function"):
        run("def f(x):\n    return f\n")


def test_a_missing_function_is_named():
    with pytest.raises(NameError, match="defines no 'f'"):
        run("def g(x):\n    return x\n")


def test_the_answer_may_be_a_class_and_find_its_own_module():
    source = """
        import dataclasses, pickle
        @dataclasses.dataclass
        class f:
            x: object
        kept = pickle.dumps(f(1))
    """
    driver = "def on_rank(answer, x):\n    return answer(x).x\n"
    assert same(run(source, driver=driver)["value"], torch.tensor([1.0, float("nan")]))


def test_the_learners_text_is_compiled_as_it_stands():
    """This package's `from __future__ import annotations` must not reach it."""
    source = "seen = []\ndef f(x: seen.append('evaluated')):\n    return seen\n"
    assert run(source)["value"] == ["evaluated"]


def test_the_drivers_annotations_may_name_what_exists_in_the_judge_only():
    driver = (
        "def on_rank(answer: Anything, x: Case) -> Whatever:\n    return [rank, world_size, torch.ones(1), str(dist)]\n"
    )
    assert run("def f(x): ...", driver=driver)["value"][:2] == [0, 1]


def test_errors_show_the_learners_lines():
    import traceback

    with pytest.raises(ZeroDivisionError) as caught:
        run("def f(x):\n    return 1 / 0  # here\n")
    text = "".join(traceback.format_exception(caught.value))
    assert 'File "exercises/ch01_ranks/f.py", line 2, in f\n    return 1 / 0  # here' in text


def test_loading_does_not_call():
    assert load_answer(spec("def f(x):\n    raise SystemExit\n")).__name__ == "f"


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (float("nan"), float("nan"), True),
        (1, 1.0, False),
        (True, 1, False),
        ([1, [2]], [1, [2]], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        (torch.tensor([float("nan")]), torch.tensor([0.0]), False),
        (torch.tensor([float("inf")]), torch.tensor([3.4028234663852886e38]), False),
        (torch.ones(2), torch.ones(2, 1), False),
        (torch.ones(2), torch.ones(2).double(), False),
        (torch.empty(0), torch.empty(0), True),
        (torch.ones(1), 1.0, False),
    ],
)
def test_sameness(a, b, equal):
    assert same(a, b) is equal
