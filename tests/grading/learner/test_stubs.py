import pytest

from dtlearn.grading.learner.stubs import same_text, stub_of, to_cell, to_file, with_task, without_task

SOLUTION = '''\
"""Average a tensor over the ranks.

The task.
"""

import torch
import torch.distributed as dist  # used in the answer only


def average(x: torch.Tensor) -> torch.Tensor:
    """The mean over the ranks."""
    # This comment stays.
    # BEGIN SOLUTION: say "sum" first
    # This one vanishes.
    total = x.clone()

    dist.all_reduce(total)
    # END SOLUTION
    if True:
        # BEGIN SOLUTION: divide
        return total / dist.get_world_size()
        # END SOLUTION
'''

STUB = '''\
# ch01.average: edit this file, then run `dtlearn grade ch01.average`.
"""Average a tensor over the ranks.

The task.
"""

import torch
import torch.distributed as dist  # used in the answer only


def average(x: torch.Tensor) -> torch.Tensor:
    """The mean over the ranks."""
    # This comment stays.
    raise NotImplementedError("ch01.average: say \\"sum\\" first")
    if True:
        raise NotImplementedError("ch01.average: divide")
'''


def test_regions_become_one_line_each():
    assert stub_of(SOLUTION, "ch01.average", "a.py") == STUB


def test_a_class_can_be_an_answer():
    text = '"""Task."""\n\n\nclass average:\n    # BEGIN SOLUTION: all\n    x = 1\n    # END SOLUTION\n'
    assert stub_of(text, "ch01.average", "a.py").endswith('    raise NotImplementedError("ch01.average: all")\n')


HEAD = '"""T."""\ndef average():\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "    pass\n", "a.py:1: has no '# BEGIN SOLUTION"),
        (HEAD + "    # BEGIN SOLUTION: x\n    pass\n", "a.py:3: this region has no END"),
        (HEAD + "    pass\n    # END SOLUTION\n", "a.py:4: END SOLUTION without"),
        (HEAD + "    # BEGIN SOLUTION: x\n    # END SOLUTION\n    pass\n", "a.py:3: this region holds no code"),
        (HEAD + "    # BEGIN SOLUTION: x\n    # only\n    # END SOLUTION\n    pass\n", "a.py:3: .* no code"),
        (HEAD + "    # BEGIN SOLUTION: x\n    # BEGIN SOLUTION: y\n    pass\n", "a.py:4: .* inside the one of line 3"),
        (HEAD + "    # BEGIN SOLUTION\n    pass\n    # END SOLUTION\n", "a.py:3: write '# BEGIN SOLUTION: <what"),
        (HEAD + "    #BEGIN SOLUTION: x\n    pass\n    # END SOLUTION\n", "a.py:3: write"),
        (HEAD + "    # BEGIN SOLUTION: x\n    pass\n    # END SOLUTION.\n", "a.py:5: write"),
        (HEAD + "        # BEGIN SOLUTION: x\n    pass\n        # END SOLUTION\n", "a.py:3: .* further left"),
        ('"""T."""\ndef other():\n    pass\n', "no function or class 'average'"),
        ("def average():\n    pass\n", "has no docstring"),
        ("def average(:\n", "a.py:1: no valid Python"),
        (HEAD + "  \x00\n", "no valid Python"),
        (
            HEAD + "    # BEGIN SOLUTION: x\n    if 1:\n    # END SOLUTION\n        pass\n",
            "its stub is no valid Python",
        ),
    ],
)
def test_what_cannot_be_blanked_is_refused_with_its_place(text, says):
    with pytest.raises(ValueError, match=says):
        stub_of(text, "ch01.average", "a.py")


def test_spaces_at_line_ends_make_no_difference():
    assert same_text("\na  \n\n  b\n", "a\n\n  b")
    assert not same_text("a\nb", "a\n b")


def test_a_long_line_is_broken_so_that_a_cell_shows_it_whole():
    what = 'pass on to the "right" what came last, and keep what came from the left, N - 1 times'
    text = f"{HEAD}    # BEGIN SOLUTION: {what}\n    pass\n    # END SOLUTION\n"
    stub = stub_of(text, "ch01.average", "a.py")
    assert max(map(len, stub.splitlines()[1:])) <= 88
    names = {}
    exec(stub, names)
    with pytest.raises(NotImplementedError) as raised:
        names["average"]()
    assert str(raised.value) == f"ch01.average: {what}"


def test_the_cell_has_no_task_and_the_file_gets_it_back():
    head, body = to_cell(STUB, "ch01.average").split("\n", 1)
    assert head == "%%exercise ch01.average" and body.startswith("import torch\n")
    graded = to_file(body, "ch01.average")
    assert graded.splitlines()[1:] == body.splitlines(), "a line has one number in the cell and in what is graded"
    assert with_task(graded, STUB) == STUB and without_task(STUB) == graded
    assert same_text(graded, STUB)


@pytest.mark.parametrize(
    "text",
    [
        "# ch01.average: edit\nimport torch\n\ndef average(x:\n",
        "# id\nx = 1\n",
        "# id\n",
        "# one\n# two\n\ndef f():\n    'doc'\n",
    ],
)
def test_the_task_comes_and_goes_whatever_the_answer_is(text):
    assert same_text(with_task(text, STUB), text)
    assert with_task(with_task(text, STUB), STUB) == with_task(text, STUB)


def test_an_own_docstring_stays_in_the_answer():
    own = '# ch01.average: edit\n"""Mine."""\nx = 1\n'
    assert with_task(own, STUB) == own
    assert with_task("x = 1\n", "x = 2\n") == "x = 1\n", "the stub has no task to give"
