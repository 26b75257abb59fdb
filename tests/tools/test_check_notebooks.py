import pytest
from check_notebooks import bad_outputs, lists_by_chance, long_bodies
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output


def notebook(output=None, **cell):
    outputs = [output] if output else [new_output("stream", name="stdout", text="fine\n")]
    return new_notebook(cells=[new_code_cell("x", execution_count=1, outputs=outputs, id="ch01_a-001", **cell)])


def stream(text):
    return new_output("stream", name="stdout", text=text)


def problems(nb, root="/srv/course"):
    return list(bad_outputs(nb, root))


def test_fine_outputs_pass():
    assert problems(notebook()) == []
    for text in ("~/.cache/x", "https://x.org/usr/share", "dtlearn/tmp/x.py", "ratio a/b", "0xff", "<course>/tmp/x"):
        assert problems(notebook(stream(text))) == [], text


@pytest.mark.parametrize("path", ["/home/me/x.py", "see '/tmp/ranks-1'", "/srv/course/dtlearn", "/usr/lib/python3"])
def test_paths_of_the_machine_are_found(path):
    (problem,) = problems(notebook(stream(f"in {path} here")))
    assert "ch01_a-001" in problem and "path of this machine" in problem
    html = new_output("display_data", data={"text/html": f"<p>{path}</p>", "text/plain": "x"})
    assert "path of this machine" in problems(notebook(html))[0]


def test_memory_addresses_are_found():
    assert "0x7f12ab34cd56" in problems(notebook(stream("<object at 0x7f12ab34cd56>")))[0]


def test_pictures_are_not_searched():
    data = {"image/png": "/tmp/abcd", "text/html": '<img src="data:image/png;base64,aa/tmp/abcd0x7f12ab34cd56">'}
    assert problems(notebook(new_output("display_data", data=data))) == []


def test_errors_need_their_tag():
    error = new_output("error", ename="ValueError", evalue="no", traceback=["\x1b[31mno\x1b[0m"])
    assert "not tagged raises-exception" in problems(notebook(error))[0]
    assert problems(notebook(error, metadata={"tags": ["raises-exception"]})) == []


def test_a_notebook_must_have_been_executed_and_say_something():
    nb = notebook()
    nb.cells[0].outputs = []
    assert problems(nb) == ["has no output at all"]
    nb.cells[0].execution_count = None
    assert "was not executed" in problems(nb)[0]


def function(lines):
    return "def f():\n" + "    x = 1\n" * lines


def test_long_functions_and_classes_are_found():
    assert list(long_bodies(new_code_cell(function(15)))) == []
    (problem,) = long_bodies(new_code_cell(function(16), id="c"))
    assert problem == "cell c: the body of f has 16 lines, over 15; move it to dtlearn"
    assert list(long_bodies(new_code_cell("class A:\n" + "    x = 1\n" * 16)))


def test_magics_do_not_hide_functions():
    assert list(long_bodies(new_code_cell("%%ranks -o x\n" + function(16))))
    assert list(long_bodies(new_code_cell("%load_ext dtlearn\n!ls\nif True:\n    %timeit 1\n" + function(16))))
    assert list(long_bodies(new_code_cell("%%bash\nfor x in 1; do echo; done"))) == []


def test_code_that_is_no_python_is_found():
    assert "line 1" in next(long_bodies(new_code_cell("def (:", id="c")))


def test_a_number_at_the_beginning_of_a_wrapped_line_is_found():
    (problem,) = lists_by_chance(new_markdown_cell("- it adds 369 MB in place of\n  705. The peak", id="c"))
    assert problem.startswith("cell c: '705. The peak' begins a list with 705")
    assert list(lists_by_chance(new_markdown_cell("1. one\n2. two\n\n1. again\nin 2026 and 3.5"))) == []
    assert list(lists_by_chance(new_code_cell("# 7. no text"))) == []
