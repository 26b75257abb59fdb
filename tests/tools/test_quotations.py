import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from quotations import outdated, quotations

from dtlearn.collectives import ring
from dtlearn.notebook.source import quote

CELLS = [
    "%load_ext dtlearn\nimport dtlearn\nfrom dtlearn.collectives import ring",
    "dtlearn.show_source(ring.all_gather, docstring=False)\nif True:\n    dtlearn.show_source(ring.all_reduce)",
    "%%bash\nfor x in 1; do echo; done",
]


def notebook(*extra):
    cells = [new_code_cell(text, id=f"c{i}") for i, text in enumerate([*CELLS, *extra])]
    return new_notebook(cells=[new_markdown_cell("show_source(nothing)", id="title"), *cells])


def built(*texts):
    """The notebook with the given plain texts below its second cell, written and read again."""
    nb = notebook()
    nb.cells[2].outputs = [new_output("display_data", data={"text/plain": text}) for text in texts]
    return nbformat.reads(nbformat.writes(nb), as_version=nbformat.NO_CONVERT)


def test_every_call_is_found_with_its_cell_and_options():
    gather, reduce = quotations(notebook())
    assert (gather.cell_id, gather.name) == ("c1", "ring.all_gather")
    assert '"""' not in gather.source.code and "(docstrings left out)" in gather.source.caption
    assert (reduce.cell_id, reduce.name, reduce.source) == ("c1", "ring.all_reduce", quote(ring.all_reduce))


SHOWN = str(quote(ring.all_gather, docstring=False)), str(quote(ring.all_reduce))


def test_what_shows_the_code_of_today_is_up_to_date():
    assert list(outdated(notebook(), built(*SHOWN))) == []


@pytest.mark.parametrize(
    ("was", "now"),
    [("return", "yield"), (", lines ", ", lines 1")],
    ids=["other code", "other lines"],
)
def test_a_function_that_has_changed_since_is_named(was, now):
    assert was in SHOWN[0] and was in SHOWN[1]
    stale = built(SHOWN[0].replace(was, now), SHOWN[1])
    assert list(outdated(notebook(), stale)) == [
        "cell c1: shows ring.all_gather as it was, not as it is; run make notebooks"
    ]
    assert len(list(outdated(notebook(), built()))) == 2


@pytest.mark.parametrize("call", ["ring.no_such", "no_such", "len"])
def test_what_is_no_longer_there_is_told(call):
    (problem,) = outdated(notebook(f"dtlearn.show_source({call})"), built(*SHOWN))
    assert problem.startswith("what it quotes is not there: ")
    assert call.rpartition(".")[2] in problem
