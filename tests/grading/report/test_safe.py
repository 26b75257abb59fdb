import pytest

from dtlearn.grading.report.safe import MOST, MOST_LINE, MOST_LINES, csv_cell, hide_paths, lines_of, one_line, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x9b31mred", "red"),
        ("\x1b(Bplain\x1b=", "plain"),
        ("an open \x1b]0;string keeps the text", "an open ]0;string keeps the text"),
        ("a\x00b\x07c\x7f", "abc"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\tb", "a   b"),
        ("x\ud800y\uffff", "x\ufffdy\ufffd"),
        ("safe\u202eexe", "safeexe"),
        ("数据并行 ok ✓ ü", "数据并行 ok ✓ ü"),
    ],
)
def test_plain(text, shown):
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('File "/home/ada/a b/exercises/ch01_ranks/x.py", line 3', 'File "exercises/ch01_ranks/x.py", line 3'),
        ('File "/usr/lib/python3.11/json/decoder.py", line 3', 'File "json/decoder.py", line 3'),
        ('File "/x/.venv/lib/python3.11/site-packages/torch/nn/m.py"', 'File "torch/nn/m.py"'),
        ("No such file: '/home/ada'", "No such file: '~'"),
        ("see /tmp/run-8151/rank0.log: empty", "see rank0.log: empty"),
        ("file:///home/ada/x.py", "x.py"),
        (r"C:\Users\ada\course\x.py", "x.py"),
        ("/root/course/x.py:12", "x.py:12"),
        ("(/srv/course/x.py)", "(x.py)"),
        ("path=/srv/course/x.py", "path=x.py"),
        ("/dev/shm/x", "/dev/shm/x"),
        # no paths
        ("https://pytorch.org/docs/stable/x.html", "https://pytorch.org/docs/stable/x.html"),
        ("2*(N-1)/N/2 and/or a/b/c", "2*(N-1)/N/2 and/or a/b/c"),
        ("exercises/ch01_ranks/x.py", "exercises/ch01_ranks/x.py"),
        ("</b></a>", "</b></a>"),
    ],
)
def test_hide_paths(text, shown):
    assert hide_paths(text) == shown


def test_long_texts_lose_their_middle():
    text = plain("head " + "x" * 100_000_000 + " tail")
    assert text.startswith("head")
    assert text.endswith("tail")
    assert "characters left out" in text
    assert len(text) <= MOST + 100


def test_a_cut_never_leaves_half_a_path():
    for start in range(40):
        text = plain("x" * start + " /home/ada/secret/file.py" * 20, 100)
        assert "ada" not in text
        assert "secret" not in text


def test_lines():
    assert lines_of(("a\nb", "c  ")) == ("a", "b", "c")
    many = lines_of(tuple(map(str, range(10_000))))
    assert len(many) == MOST_LINES + 1
    assert "lines left out" in " ".join(many)
    assert all(len(line) <= MOST_LINE for line in lines_of(("y" * 3000,)))


def test_one_line():
    assert one_line(" a\n\n b\t") == "a b"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", " =", "\n@", "＝", "\x00="])
def test_no_cell_begins_a_formula(start):
    cell = csv_cell(f"{start}cmd|' /C calc'!A0")
    assert cell.startswith("'")


def test_a_cell_that_is_no_formula_stays():
    assert csv_cell("O'Neil, Ada") == "O'Neil, Ada"
    assert csv_cell("a;=1+1") == "a;'=1+1"
