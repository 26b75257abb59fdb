import re

import pytest

from dtlearn.notebook import panel_sink
from dtlearn.notebook.panel_sink import PanelSink
from tests.notebook.messages import PNG, clear, display, figure, stderr, stream, value


class Screen:
    """Stands for `IPython.display.display`: keeps every state of the panel."""

    def __init__(self):
        self.states = []
        self.num_panels = 0

    def display(self, data, *, raw, display_id):
        assert raw and display_id
        self.num_panels += 1
        self.update(data, raw=raw)
        return self

    def update(self, data, *, raw):
        assert raw
        self.states.append(data)

    def cards(self):
        """The cards of the last state: [(title, text), ...]."""
        page = self.states[-1]["text/html"]
        return re.findall(r"<section.*?<b>(.*?</b>.*?)</div><pre[^>]*>(.*?)</pre>", page, re.DOTALL)


@pytest.fixture
def screen(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("IPython.display.display", screen.display)
    return screen


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(panel_sink.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def play(sink, *messages):
    for rank, message in messages:
        sink.publish(rank, message)
    sink.close()


def test_a_card_for_each_rank_with_its_lines_and_values(screen):
    play(PanelSink([0, 1]), (1, stream("b\n")), (0, stream("a\n")), (0, stderr("careful\n")), (1, value("7")))
    assert screen.cards() == [("rank 0</b> ended", "a\ncareful"), ("rank 1</b> ended", "b\n7")]
    assert screen.states[-1]["text/plain"] == "[0] a\n[0] careful\n[1] b\n[1] 7"


def test_the_words_fold_equal_lines_and_leave_out_silent_ranks(screen):
    play(PanelSink([0, 1, 2]), (0, stream("a\nb\n")), (1, stream("a\n")))
    assert screen.states[-1]["text/plain"] == "[0-1] a\n[0] b"
    assert screen.cards()[2] == ("rank 2</b> ended", "")


def test_what_ranks_print_is_escaped(screen):
    play(PanelSink([0]), (0, stream("<script>alert('x')</script> a & b\n")))
    page = screen.states[-1]["text/html"]
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; a &amp; b" in page and "<script" not in page


def test_the_panel_is_refreshed_in_place_five_times_a_second(screen, clock):
    sink = PanelSink([0])
    sink.tick()
    assert screen.cards() == [("rank 0</b> running", "")]
    for i in range(3):
        sink.publish(0, stream(f"{i}\n"))
        clock(0.15)
        sink.tick()
    assert [state["text/plain"] for state in screen.states] == ["", "[0] 0\n[0] 1"]
    sink.close()
    assert screen.cards() == [("rank 0</b> ended", "0\n1\n2")]
    assert screen.num_panels == 1


def test_nothing_new_is_not_drawn_again(screen, clock):
    sink = PanelSink([0])
    sink.tick()
    for _ in range(3):
        clock(1)
        sink.tick()
    assert len(screen.states) == 1


def test_figures_stand_in_the_card_of_their_rank(screen):
    play(PanelSink([0, 1]), (1, figure("first")), (1, figure(PNG)), (0, stream("a\n")))
    first, second = screen.states[-1]["text/html"].split("</section>")[:2]
    assert "<img" not in first
    images = re.findall(r'<img alt="([^"]*)"[^>]*src="data:image/png;base64,([^"]*)"', second)
    assert images == [("figure shown by rank 1", "first"), ("figure shown by rank 1", PNG)]
    assert "Figure size" not in second


def test_other_displays_are_shown_by_their_words(screen):
    play(PanelSink([0]), (0, display(text_html="<table>", text_plain="   x\n0  1")), (0, display(text_html="<hr>")))
    assert screen.cards() == [("rank 0</b> ended", "   x\n0  1")]


def test_bars_are_settled_cleared_output_is_gone_hidden_values_are_hidden(screen):
    sink = PanelSink([0], hide_results=True)
    play(sink, (0, stream("old\n")), (0, clear()), (0, stderr("\r 0%\r100%")), (0, value("7")))
    assert screen.cards() == [("rank 0</b> ended", "100%")]


def test_the_last_lines_of_a_long_output_are_shown(screen):
    play(PanelSink([0]), (0, stream("".join(f"{i}\n" for i in range(1000)))))
    (_, text) = screen.cards()[0]
    assert text.split("\n")[:2] + text.split("\n")[-1:] == ["[800 lines above]", "800", "999"]
    assert screen.states[-1]["text/plain"].startswith("[0] [800 lines above]\n[0] 800\n")


def test_output_has_a_limit_and_says_what_is_missing(screen, capsys):
    play(PanelSink([0]), (0, stream("x" * (5 << 20))), (0, stream("123")))
    assert capsys.readouterr().err == "[... 3 characters of output left out ...]\n"


def test_a_launcher_has_a_card_of_its_own(screen):
    play(PanelSink([0]), (-1, stream("hi\n")))
    assert screen.cards() == [("rank 0</b> ended", ""), ("launcher</b> ended", "hi")]


@pytest.mark.parametrize(("ranks", "columns"), [(1, 1), (3, 3), (8, 4)])
def test_at_most_four_cards_stand_in_a_row(screen, ranks, columns):
    play(PanelSink(list(range(ranks))))
    assert f"grid-template-columns:repeat({columns},minmax(0,1fr))" in screen.states[-1]["text/html"]
    assert len(screen.cards()) == ranks
