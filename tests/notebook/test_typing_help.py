"""Tab and Shift-Tab, as a front end asks for them."""

from types import SimpleNamespace

import pytest

from dtlearn.notebook import typing_help
from dtlearn.notebook.typing_help import add_typing_help
from dtlearn.runtime.errors import DtlearnError
from tests.grading.small_course import ID, small_course
from tests.notebook.kernel import Notebook

RANKS = "%%ranks -r 0\n"


class Kernel:
    """A kernel that knows the name `own`, and what it was asked."""

    def __init__(self):
        self.asked = []

    def do_complete(self, code, cursor_pos):
        self.asked.append((code, cursor_pos, shell_of(self).Completer.use_jedi))
        types = [{"start": 0, "end": cursor_pos, "text": "own"}]
        return answer(["own"], cursor_pos, {"_jupyter_types_experimental": types})

    def do_inspect(self, code, cursor_pos, detail_level=0, omit_sections=()):
        self.asked.append((code, cursor_pos, detail_level, omit_sections))
        return {"status": "ok", "found": True, "data": {"text/plain": "own"}}


class World:
    """Ranks of which rank 0 gives one answer to all questions."""

    running = True

    def __init__(self, reply):
        self.reply, self.asked = reply, []

    def look_up(self, question, content):
        self.asked.append((question, content))
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def answer(matches, cursor, metadata=None):
    return {"status": "ok", "matches": matches, "cursor_start": 0, "cursor_end": cursor, "metadata": metadata or {}}


def shell_of(kernel):
    return kernel.shell


@pytest.fixture
def kernel():
    kernel = Kernel()
    kernel.shell = SimpleNamespace(kernel=kernel, Completer=SimpleNamespace(use_jedi=True))
    add_typing_help(kernel.shell)
    return kernel


@pytest.fixture
def ranks(monkeypatch):
    """Have the notebook's ranks answer so."""

    def make(reply):
        world = World(reply)
        monkeypatch.setattr(typing_help, "last_world", lambda: world)
        return world

    return make


def test_a_cell_on_ranks_is_completed_by_rank_0(kernel, ranks):
    world = ranks(answer(["rank"], 3))
    reply = kernel.do_complete(f"{RANKS}ran", len(RANKS) + 3)
    assert reply["matches"] == ["rank"]
    assert (reply["cursor_start"], reply["cursor_end"]) == (len(RANKS), len(RANKS) + 3)
    assert world.asked == [("complete_request", {"code": "ran", "cursor_pos": 3})] and not kernel.asked


def test_of_a_cell_on_ranks_the_notebooks_names_are_no_names(kernel, ranks):
    ranks(answer([], 3))
    assert kernel.do_complete(f"{RANKS}own", len(RANKS) + 3)["matches"] == []
    assert kernel.do_complete("%%exercise ch01.x\nown", 21)["matches"] == ["own"]
    assert kernel.do_complete("own", 3)["matches"] == ["own"]


@pytest.mark.parametrize("reply", [None, {"status": "error"}, DtlearnError("stopped")])
def test_while_rank_0_does_not_answer_the_notebook_does(kernel, ranks, reply):
    ranks(reply)
    completed = kernel.do_complete(f"{RANKS}ow", len(RANKS) + 2)
    assert completed["matches"] == ["own"] and completed["cursor_start"] == len(RANKS)
    (entry,) = completed["metadata"]["_jupyter_types_experimental"]
    assert (entry["start"], entry["end"]) == (len(RANKS), len(RANKS) + 2)
    assert kernel.asked == [("ow", 2, False)], "jedi would read torch's sources"
    assert kernel.shell.Completer.use_jedi
    assert kernel.do_inspect(f"{RANKS}own", len(RANKS) + 2, 1, {"x"})["data"] == {"text/plain": "own"}
    assert kernel.asked[1] == ("own", 2, 1, {"x"})


def test_names_are_inspected_on_rank_0(kernel, ranks):
    world = ranks({"status": "ok", "found": False, "data": {}})
    assert not kernel.do_inspect(f"{RANKS}own", len(RANKS) + 2, 1)["found"]
    assert world.asked == [("inspect_request", {"code": "own", "cursor_pos": 2, "detail_level": 1})]
    assert kernel.do_inspect("%%exercise ch01.x\nown", 20)["found"], "the notebook has it, where an answer passed"
    assert kernel.do_inspect("own", 2)["found"] and kernel.do_inspect(f"{RANKS}own", 4)["found"]


@pytest.mark.parametrize(
    "code", ["%%exercise ch01.av", "%try ch", "x = 1\n%hint ", "%solution ch01", "%reset_exercise c"]
)
def test_ids_come_from_the_course(kernel, code, tmp_path, monkeypatch):
    course = small_course(tmp_path)
    monkeypatch.setattr(typing_help, "load_course", lambda: course)
    reply = kernel.do_complete(f"{code}\nafter", len(code))
    assert reply["matches"] == [ID] and reply["cursor_end"] == len(code)
    assert code[reply["cursor_start"] :] == code.rpartition(" ")[2]
    assert kernel.do_complete("%hint ch99", 10)["matches"] == []


def test_without_a_course_there_are_no_ids(kernel, monkeypatch):
    def no_course():
        raise ValueError("no course.toml")

    monkeypatch.setattr(typing_help, "load_course", no_course)
    assert kernel.do_complete("%hint ch", 8)["matches"] == []


def test_a_second_time_and_a_terminal_change_nothing(kernel):
    before = kernel.do_complete
    add_typing_help(kernel.shell)
    assert kernel.do_complete is before
    add_typing_help(SimpleNamespace())


def test_a_real_kernel_asks_real_ranks(tmp_path):
    notebook = Notebook(tmp_path)
    try:
        assert notebook.run("%load_ext dtlearn\nimport dtlearn\nworld = dtlearn.world(2, device='cpu')\nmy_own = 1").ok
        notebook.run("%%ranks\nmy_long_tensor = torch.ones(2)")
        # A busy machine may need some tries: until rank 0 answers, it is the notebook that does.
        names = [notebook.complete("%%ranks\nmy_") for _ in range(5)]
        assert ["my_long_tensor"] in names
        assert "my_own" in notebook.complete("my_")
        assert [".all_reduce_coalesced"] in [
            notebook.complete("%%exercise ch01.x\ndist.all_reduce_c") for _ in range(5)
        ]
        assert any("Tensor" in notebook.inspect("%%ranks\nmy_long_tensor") for _ in range(5))
        assert "" in [notebook.inspect("%%ranks\nmy_own") for _ in range(5)]
    finally:
        notebook.close()
