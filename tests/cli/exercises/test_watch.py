import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dtlearn.cli.exercises import watch
from tests.grading.small_course import ID, RIGHT, WRONG, answer_file, small_course
from tests.warm_starts import MAY_BE_WARM

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("one")
    return path


class Clock:
    """Stands in for `time.sleep`; at its n-th pause something is done."""

    def __init__(self, **steps):
        self.steps, self.now = {int(name[1:]): do for name, do in steps.items()}, 0

    def __call__(self, seconds):
        self.now += 1
        assert self.now < 50, "nothing was seen"
        self.steps.get(self.now, lambda: None)()


def write(path, text):
    def now():
        path.write_text(text)
        os.utime(path, ns=(write.time, write.time))
        write.time += 10**9

    return now


write.time = 10**18


def test_a_file_that_is_there_can_come_at_once(file):
    assert next(watch.changes([file], True, Clock())) == file


def test_a_save_is_seen_when_it_is_over(file):
    clock = Clock(_2=write(file, "two"), _3=write(file, "three"), _4=write(file, "four"))
    assert next(watch.changes([file], False, clock)) == file
    assert clock.now == 5 and file.read_text() == "four", "one turn for one burst of writes"


def test_an_editor_may_replace_the_file(file, tmp_path):
    (tmp_path / "new").write_text("one")
    os.utime(tmp_path / "new", ns=(file.stat().st_mtime_ns,) * 2)
    clock = Clock(_2=file.unlink, _4=lambda: os.replace(tmp_path / "new", file))
    assert next(watch.changes([file], False, clock)) == file
    assert clock.now >= 4


def test_a_file_that_goes_away_is_waited_for(file):
    clock = Clock(_2=write(file, "two"), _3=file.unlink, _6=write(file, "three"))
    assert next(watch.changes([file], False, clock)) == file
    assert file.read_text() == "three"


def test_what_is_saved_meanwhile_comes_next(file, tmp_path):
    other = tmp_path / "b.py"
    seen = watch.changes([file, other], True, Clock())
    assert next(seen) == file
    write(other, "new")()
    assert next(seen) == other
    write(file, "two")()
    assert next(seen) == file


_WATCH = f"""{MAY_BE_WARM}
import sys
from pathlib import Path
from dtlearn import cli
from dtlearn.cli.exercises import watch
from dtlearn.course import load_course
watch.load_course = lambda: load_course(Path(sys.argv[1]))
sys.exit(cli.main(["watch", "ch01.average"]))
"""


def test_each_save_is_graded_until_an_interrupt(tmp_path):
    course = small_course(tmp_path / "kurs ü")
    root, file = course.root, answer_file(course)
    file.write_text(WRONG)
    with subprocess.Popen(
        [sys.executable, "-c", _WATCH, str(root)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        guard = threading.Timer(60, process.kill)
        guard.start()
        said = ""
        for line in process.stdout:
            said += line
            if "same inputs" in line:
                file.write_text("\xff", encoding="latin-1")
            elif "no text in UTF-8" in line:
                file.write_text(RIGHT)
            elif "small  ok    ok" in line:
                process.send_signal(signal.SIGINT)
        guard.cancel()
    assert process.returncode == 0
    assert said.index("watching work/ch01_small/average.py") < said.index("DTL-VALUE-FACTOR")
    assert said.index("DTL-VALUE-FACTOR") < said.index("PASSED") < said.index("no longer watching")
    assert "Traceback" not in said and "\x1b" not in said and ID in said
