"""The page says what ran, what failed and what the time did not reach."""

import sys
import time

import pytest
import test_gpu
from test_gpu import Part, counted, main, page, run

from dtlearn.bench.benches import BENCHES

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.zero" name="test_a[cuda]"/>
<testcase classname="tests.zero" name="test_b[cuda]"><failure message="RuntimeError: two devices&#10;more">at</failure>
</testcase>
<testcase classname="tests.zero" name="test_c[cuda]"><skipped message="why"/></testcase>
<testcase classname="tests.zero" name="test_d[cuda]"><error message="LaunchError"/></testcase>
</testsuite></testsuites>"""


def test_tests_are_counted_and_failures_kept(tmp_path):
    (tmp_path / "junit.xml").write_text(JUNIT)
    counts, failures = counted(tmp_path / "junit.xml")
    assert counts == {"passed": 1, "failed": 2, "skipped": 1}
    assert failures == [
        ("tests.zero::test_b[cuda]", "RuntimeError: two devices\nmore"),
        ("tests.zero::test_d[cuda]", "LaunchError"),
    ]


def test_a_command_that_takes_too_long_ends():
    status, output = run([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"], 3)
    assert status is None and "begun" in output
    assert run([sys.executable, "-c", "print(3); raise SystemExit(4)"], 60) == (4, "3\n")


@pytest.mark.parametrize("name", test_gpu.BENCHES)
def test_its_benches_are_there(name):
    assert name in BENCHES
    assert test_gpu.BENCH[1:] == ("-m", "dtlearn", "bench")


def test_a_bench_that_fails_is_said(monkeypatch):
    monkeypatch.setattr(test_gpu, "BENCHES", ("zero",))
    monkeypatch.setattr(test_gpu, "BENCH", (sys.executable, "-m", "dtlearn", "bench", "--ranks", "1"))
    part = test_gpu.benches_part(0, time.monotonic() + 60)
    assert part.result == "0 of 1" and part.failures[0][0] == "bench zero" and "not ended" in part.text
    assert "Not run, the time was up: zero" in test_gpu.benches_part(0, time.monotonic()).text


def test_the_page_has_each_part_its_text_and_what_failed():
    parts = [
        Part("tests", "3 passed, 1 failed", 61.2, [("tests.zero::test_b", "\n".join(f"line {n}" for n in range(50)))]),
        Part("benches", "1 of 2", 9.6, text="the table"),
    ]
    text = page(parts, ["torch 2"], "cuda")
    assert "not run on a GPU" not in text and "- torch 2" in text
    assert "| tests | 3 passed, 1 failed | 61 |" in text and "| benches | 1 of 2 | 10 |" in text
    assert "the table" in text and "line 0\n" in text and "line 49" not in text
    without = page([Part("tests", "3 passed")], [], "stand_in")
    assert "**not run on a GPU**" in without and "None." in without


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert main([]) == 2
    assert "no GPU here" in capsys.readouterr().out


@pytest.mark.slow
def test_on_the_stand_in_it_runs_what_takes_a_device(monkeypatch, tmp_path):
    monkeypatch.setattr(test_gpu, "BENCHES", ())
    monkeypatch.setattr(test_gpu, "NOTEBOOKS", "tests/sharing/test_along_dim.py")
    report = tmp_path / "report.md"
    assert main(["--stand-in", "--report", str(report), "tests/sharing/test_flat_collectives.py"]) == 0
    text = report.read_text("utf-8")
    assert "| tests that take a device | 1 passed |" in text and "| notebooks | 1 passed |" in text
    assert "**not run on a GPU**" in text and "not run: no GPU" in text
