import random
import re

import pytest
from matplotlib.colors import to_rgb

from dtlearn.notebook import render
from dtlearn.notebook.render import GroupedSink, OneRankSink, QuietSink, StreamSink
from dtlearn.viz.style import RANK_COLORS
from tests.notebook.messages import clear, display, figure, stderr, stream, value


@pytest.fixture
def screen(monkeypatch, capsys):
    """What was shown since the last look: (stdout, stderr). Something displayed reads <its types: its words>."""
    monkeypatch.setattr(
        "IPython.display.publish_display_data",
        lambda data, metadata: print(f"<{', '.join(data)}: {data.get('text/html', data.get('text/plain'))}>"),
    )
    return lambda: tuple(capsys.readouterr())


@pytest.fixture
def clock(monkeypatch):
    """Turns the clock of the live views on: `clock(0.1)`."""
    now = [100.0]
    monkeypatch.setattr(render.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def play(sink, *messages):
    """Publish pairs of (rank, message), and end the cell."""
    for rank, message in messages:
        sink.publish(rank, message)
    sink.close()


def plain(text):
    return re.sub(r"\x1b\[[\d;]+m", "", text)


def test_grouped_shows_equal_lines_once_and_the_others_by_rank(screen):
    play(
        GroupedSink([0, 1]),
        (0, stream("start\n")),
        (1, stream("start\nloss 2\n")),
        (0, stream("loss 1\nend\n")),
        (1, stream("end\n")),
    )
    assert screen() == ("[0-1] start\n[0] loss 1\n[1] loss 2\n[0-1] end\n", "")


def test_grouped_is_the_same_text_whatever_the_order_of_arrival(screen):
    said = {
        rank: [
            stream("start\nhalf"),
            stderr("careful\n"),
            stream(f" {rank % 2}\n"),
            figure(),
            display(text_html=f"<b>{rank}</b>", text_plain="b"),
            stream("end"),
            value(f"{rank % 2}"),
        ]
        for rank in range(4)
    }
    expected = (
        "[0-3] start\n[0,2] half 0\n[1,3] half 1\n[0-3] end\n[0,2] 0\n[1,3] 1\n"
        + "".join(
            f"[{r}] shows:\n<image/png, text/plain: <Figure size 640x480 with 1 Axes>>\n"
            f"[{r}] shows:\n<text/html, text/plain: <b>{r}</b>>\n"
            for r in range(4)
        ),
        "[0-3] careful\n",
    )
    for seed in range(10):
        turns = [rank for rank, messages in said.items() for _ in messages]
        random.Random(seed).shuffle(turns)
        left = {rank: iter(messages) for rank, messages in said.items()}
        play(GroupedSink(list(said)), *((rank, next(left[rank])) for rank in turns))
        assert screen() == expected


def test_grouped_shows_nothing_before_the_end(screen):
    sink = GroupedSink([0])
    sink.publish(0, stream("a\n"))
    sink.publish(0, figure())
    sink.tick()
    assert screen() == ("", "")


def test_what_ranks_write_to_stderr_goes_to_stderr(screen):
    play(GroupedSink([0, 1]), (0, stderr("careful\n")), (1, stream("fine\n")), (1, stderr("careful\n")))
    assert screen() == ("[1] fine\n", "[0-1] careful\n")


def test_a_progress_bar_is_its_last_state(screen):
    bar = "".join(f"\r{i}%" for i in range(0, 101, 10))
    play(GroupedSink([0, 1]), (0, stderr(bar)), (1, stderr(bar + "\n")))
    assert screen() == ("", "[0-1] 100%\n")


def test_values_of_several_lines_are_indented_under_their_rank(screen):
    play(GroupedSink([0, 1]), (0, value("[1,\n 2]")), (1, value("[1,\n 2]")))
    assert screen() == ("[0-1] [1,\n       2]\n", "")


def test_the_last_value_is_hidden_when_it_was_asked_for(screen):
    play(GroupedSink([0], hide_results=True), (0, stream("a\n")), (0, value("1")), (0, display(text_plain="shown")))
    assert screen() == ("[0] a\n[0] shown\n", "")


def test_a_display_that_is_updated_is_shown_in_its_last_state(screen):
    play(
        GroupedSink([0, 1]),
        (0, display("bar", text_html="1")),
        (0, display(text_html="other")),
        (0, display("bar", update=True, text_html="2")),
        (1, display("bar", text_html="of rank 1")),
        (0, display("bar", update=True, text_html="3")),
    )
    shown = ["[0] shows:", "<text/html: 3>", "[0] shows:", "<text/html: other>", "[1] shows:", "<text/html: of rank 1>"]
    assert screen()[0].splitlines() == shown


@pytest.mark.parametrize("view", [GroupedSink, StreamSink])
def test_clear_output_drops_what_that_rank_has_not_shown_yet(screen, view):
    play(view([0, 1]), (0, stream("a\n")), (0, figure()), (1, stream("b\n")), (0, clear()), (0, stream("c\n")))
    assert plain(screen()[0]) == "[0] c\n[1] b\n"


@pytest.mark.parametrize("view", [GroupedSink, StreamSink])
def test_output_has_a_limit_and_says_what_is_missing(screen, view):
    block = "x" * 1023 + "\n"
    play(view([0]), *[(0, stream(block * 1024))] * 5, (0, stream("12345")), (0, stderr("67\n")))
    out, err = screen()
    assert len(plain(out)) == (5 << 20) + 5 * 1024 * len("[0] ")
    assert err == "[... 8 characters of output left out ...]\n"


def test_a_widget_is_shown_by_its_words(screen):
    widget = display(text_plain="0% 0/3")
    widget["content"]["data"]["application/vnd.jupyter.widget-view+json"] = {"model_id": "a"}
    play(GroupedSink([0]), (0, widget))
    assert screen() == ("[0] 0% 0/3\n", "")


def test_other_messages_are_not_shown(screen):
    play(GroupedSink([0]), (0, {"msg_type": "error", "content": {"ename": "E", "evalue": "", "traceback": []}}))
    assert screen() == ("", "")


def test_lines_of_a_launcher_are_marked_as_such(screen):
    play(GroupedSink([0]), (-1, stream("hi\n")), (0, stream("ho\n")))
    assert screen() == ("[launcher] hi\n[0] ho\n", "")


def test_stream_shows_whole_lines_as_they_come(screen, clock):
    sink = StreamSink([0, 1])
    sink.publish(0, stream("one\ntw"))
    sink.publish(1, stream("one\n"))
    sink.tick()
    assert plain(screen()[0]) == "[0-1] one\n"
    sink.publish(0, stream("o\nrest"))
    clock(0.2)
    sink.tick()
    assert plain(screen()[0]) == "[0] two\n"
    sink.close()
    assert plain(screen()[0]) == "[0] rest\n"


def test_stream_waits_a_moment_so_that_equal_lines_meet(screen, clock):
    sink = StreamSink([0, 1])
    sink.tick()
    sink.publish(0, stream("a\n"))
    clock(0.05)
    sink.tick()
    assert screen() == ("", "")
    sink.publish(1, stream("a\n"))
    clock(0.06)
    sink.tick()
    assert plain(screen()[0]) == "[0-1] a\n"


def test_stream_gives_ranks_their_colours_of_the_figures(screen, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    play(StreamSink([0, 1]), (0, stream("a\nb\n")), (1, stream("a\nc\n")))
    red, green, blue = (round(255 * part) for part in to_rgb(RANK_COLORS[0]))
    blue, orange = f"\x1b[38;2;255;255;255;48;2;{red};{green};{blue}m", "\x1b[38;2;0;0;0;48;2;230;159;0m"
    assert screen()[0] == f"\x1b[1m[0-1]\x1b[0m a\n{blue}[0]\x1b[0m b\n{orange}[1]\x1b[0m c\n"


def test_stream_keeps_stderr_apart_and_settles_bars(screen):
    play(StreamSink([0]), (0, stderr("\r 0%\r50%")), (0, stream("a\n")), (0, stderr("\r100%\n")))
    assert tuple(map(plain, screen())) == ("[0] a\n", "[0] 100%\n")


def test_stream_shows_figures_and_values_once(screen, clock):
    sink = StreamSink([0, 1])
    sink.publish(1, figure())
    sink.tick()
    assert screen()[0].startswith("[1] shows:\n<image/png")
    sink.publish(0, value("3"))
    clock(0.2)
    sink.tick()
    sink.close()
    assert plain(screen()[0]) == "[0] 3\n"


def test_stream_shows_the_new_state_of_a_display_that_it_has_shown(screen, clock):
    sink = StreamSink([0])
    sink.publish(0, display("bar", text_html="1"))
    sink.tick()
    sink.publish(0, display("bar", update=True, text_html="2"))
    sink.publish(0, display("bar", update=True, text_html="3"))
    sink.close()
    assert screen()[0].splitlines()[1::2] == ["<text/html: 1>", "<text/html: 3>"]


def test_one_rank_shows_the_lowest_of_the_chosen_ranks(screen):
    play(OneRankSink([1, 2]), (2, stream("b\n")), (1, stream("a\n")), (2, figure()), (-1, stream("launcher\n")))
    assert tuple(map(plain, screen())) == ("[1] a\n", "")


def test_quiet_shows_nothing(screen):
    play(QuietSink([0]), (0, stream("a\n")), (0, stderr("b\n")), (0, figure()), (0, value("1")))
    assert screen() == ("", "")


class Notices:
    """A display that is shown once and then updated."""

    def __init__(self) -> None:
        self.shown = []

    def __call__(self, data, raw, display_id):
        assert raw and display_id
        self.update(data, raw)
        return self

    def update(self, data, raw):
        self.shown.append(data["text/plain"])


@pytest.fixture
def notices(monkeypatch):
    """Where notices are shown."""
    found = Notices()
    monkeypatch.setattr("IPython.display.display", found)
    return found


def test_a_notice_takes_the_place_of_the_last_one(notices, monkeypatch):
    monkeypatch.setattr(render, "is_live", lambda: True)
    sink = StreamSink([0, 1])
    sink.notice("")  # nothing is shown, so nothing is to be taken away
    for text in ("3 s: rank 0 waits <in> it", "10 s: rank 0 waits <in> it", ""):
        sink.notice(text)
    assert notices.shown == ["3 s: rank 0 waits <in> it", "10 s: rank 0 waits <in> it", ""]


@pytest.mark.parametrize(("view", "live"), [(GroupedSink, False), (StreamSink, False), (QuietSink, True)])
def test_no_notice_in_a_headless_run_or_where_nothing_is_to_be_shown(notices, monkeypatch, view, live):
    monkeypatch.setattr(render, "is_live", lambda: live)
    view([0, 1]).notice("3 s: rank 0 waits")
    assert notices.shown == []
