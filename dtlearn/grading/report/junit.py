"""JUnit XML, for continuous integration: a test suite per exercise, a test case per case and world size.

A wrong answer is a failure, also one that hangs or crashes; an error is the grader's own; what was not attempted or not
run is skipped. The form is the one that Jenkins reads and pytest writes (jenkinsci/xunit-plugin, junit-10.xsd).
"""

from collections.abc import Sequence
from datetime import datetime
from xml.etree import ElementTree as ET

from ..verdict import Result, Verdict
from . import words
from .console import fault_text
from .learner_view import FeedbackLevel, learner_view
from .safe import one_line

_KINDS = {"error": "error", "skipped": "skipped", "not-attempted": "skipped"}  # of the other faults: "failure"


def junit(verdicts: Sequence[Verdict], *, level: FeedbackLevel = "category", graded: datetime | None = None) -> str:
    """The XML document of one submission. `graded`: when; left out if None."""
    shown = [learner_view(v, level) for v in verdicts]
    root = ET.Element("testsuites", name="dtlearn")
    for verdict in shown:
        root.append(_suite(verdict, graded))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    root.set("time", f"{sum(v.seconds for v in shown):.3f}")
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(verdict: Verdict, graded: datetime | None) -> ET.Element:
    cases = [_case(verdict, r) for r in verdict.results]
    if verdict.state == "error" and not any(r.state == "error" for r in verdict.results):
        nothing = Result("grading", 0, "error", "DTL-GRADER", "no case was run")  # an empty suite would look green
        cases.append(_case(verdict, nothing))
    cases += [_withheld(verdict, k) for k in range(1, verdict.withheld + 1)]
    kinds = [child.tag for case in cases for child in case]
    suite = ET.Element("testsuite", name=verdict.exercise, tests=str(len(cases)))
    for key, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(kinds.count(kind)))
    suite.set("time", f"{verdict.seconds:.3f}")
    if graded is not None:
        suite.set("timestamp", graded.isoformat(timespec="seconds"))
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(verdict):
        ET.SubElement(properties, "property", name=name, value=value)
    suite.extend(cases)
    return suite


def _properties(verdict: Verdict) -> list[tuple[str, str]]:
    score = "" if verdict.withheld or verdict.state == "error" else f"{verdict.score:g}"
    rows = [
        ("title", verdict.title),
        ("state", verdict.state),
        ("score", score),
        ("points", f"{verdict.points:g}"),
        ("tier", verdict.tier),
        ("seed", str(verdict.seed) if verdict.seed else ""),
        ("attempt", str(verdict.attempt) if verdict.attempt else ""),
        ("isolation", verdict.isolation),
        *((f"version.{name}", version) for name, version in sorted(verdict.versions.items())),
        *(("note", note) for note in verdict.notes),
    ]
    return [(name, value) for name, value in rows if value]


def _case(verdict: Verdict, result: Result) -> ET.Element:
    name = words.where(result) or "reading the file"
    case = ET.Element("testcase", classname=verdict.exercise, name=name, time=f"{result.seconds:.3f}")
    kind = _KINDS.get(result.state, "failure")
    if kind == "skipped":
        ET.SubElement(case, "skipped", message=result.headline)
    elif result.state != "passed":
        fault = ET.SubElement(case, kind, type=result.code, message=one_line(result.headline))
        fault.text = fault_text(result)
    return case


def _withheld(verdict: Verdict, number: int) -> ET.Element:
    case = ET.Element("testcase", classname=verdict.exercise, name=f"hidden case {number}", time="0.000")
    ET.SubElement(case, "skipped", message="counts; shown after the due date")
    return case
