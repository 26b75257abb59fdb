"""What each part of the suite takes, and each chapter: read from pytest's JUnit file, printed by tools/run_tests.py.

Seconds are those of the tests with their fixtures, added up over the workers; a part's share is its share of the run.

python tools/seconds_by_part.py junit.xml
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGE = 0.12  # a part with a larger share is shown by its folders
_CHAPTER = re.compile(r"(?:\b|_)(ch\d\d)[._]")  # in a notebook's name, an exercise's id or an answer's folder


@dataclass(frozen=True)
class Test:
    """A test that ran: its file as a dotted name, its own name, and its seconds."""

    __test__ = False  # not for pytest
    file: str
    name: str
    seconds: float

    def folder(self, depth: int) -> str:
        """The folder of its file, at most so deep: tests.viz.test_style -> tests/viz; a notebook is its own."""
        parts = self.file.removesuffix(".ipynb").split(".")
        names = [part for part in parts if not part.startswith("test_") and part[:1].islower()]
        return "/".join(names[:depth]) or "."

    def chapter(self, packages: dict[str, str]) -> str:
        """The chapter that it is there for, of those of `packages` ({package: chapter}); "" if it is the platform's."""
        mark = _CHAPTER.search(f"{self.file} {self.name}")
        chapter = mark[1] if mark else packages.get(self.folder(2).removeprefix("tests/"), "")
        return chapter if chapter in packages.values() else ""


def read(junit: Path) -> list[Test]:
    """The tests of a JUnit file."""
    cases = ElementTree.parse(junit).getroot().iter("testcase")
    return [Test(case.get("classname", ""), case.get("name", ""), float(case.get("time", 0))) for case in cases]


def table(tests: list[Test], slugs: Iterable[str]) -> str:
    """Seconds, share and number of tests of each part, the largest first; then of each chapter of these."""
    total = sum(test.seconds for test in tests) or 1.0
    small: Counter[str] = Counter()
    for test in tests:
        small[test.folder(2)] += test.seconds
    parts = [test.folder(2 if small[test.folder(2)] < LARGE * total else 3) for test in tests]
    packages = {slug[5:]: slug[:4] for slug in slugs}
    chapters = [test.chapter(packages) for test in tests]
    lines = _rows(tests, parts, total)
    if any(chapters):
        lines += ["of these, for one chapter: its notebook, its exercises, the tests of its package"]
        lines += _rows(tests, chapters, total)
    return "\n".join([f"{'seconds':>9}  share  tests", *lines])


def _rows(tests: list[Test], keys: list[str], total: float) -> list[str]:
    seconds, numbers = Counter[str](), Counter(keys)
    for test, key in zip(tests, keys, strict=True):
        seconds[key] += test.seconds
    return [f"{s:9.1f} {s / total:6.1%} {numbers[key]:6d}  {key}" for key, s in seconds.most_common() if key]


def chapters(root: Path = ROOT) -> list[str]:
    """The slugs of the chapters that have a notebook."""
    return sorted(path.stem for path in (root / "notebooks").glob("ch*.ipynb"))


if __name__ == "__main__":
    print(table(read(Path(sys.argv[1])), chapters()))
