from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from dtlearn.grading.report.junit import junit


@pytest.mark.parametrize("name", ["optimal", "hang", "timeout", "stub", "error", "hidden"])
def test_golden(verdicts, golden, noon, name):
    golden(f"{name}.xml", junit([verdicts[name]], graded=noon))


def count(verdict, **options):
    suite = ET.fromstring(junit([verdict], **options)).find("testsuite")
    return tuple(int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped"))


def test_failure_error_skipped(verdicts):
    assert count(verdicts["optimal"]) == (8, 0, 0, 0)
    assert count(verdicts["hang"]) == (4, 2, 0, 0)
    assert count(verdicts["timeout"]) == (6, 1, 0, 3)
    assert count(verdicts["stub"]) == (1, 0, 0, 1)
    assert count(verdicts["error"]) == (4, 0, 1, 0)
    assert count(verdicts["hidden"], level="after-due-date") == (4, 0, 0, 3)


def test_a_grading_without_cases_is_not_green(verdicts):
    assert count(replace(verdicts["error"], results=())) == (1, 0, 1, 0)


def test_totals_and_properties(verdicts):
    root = ET.fromstring(junit([verdicts["hang"], verdicts["error"]]))
    assert [root.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["8", "2", "1", "0"]
    properties = {p.get("name"): p.get("value") for p in root[0].iter("property")}
    assert (properties["score"], properties["points"], properties["seed"]) == ("0", "5", "20261120")
    assert "score" not in {p.get("name") for p in root[1].iter("property")}


def test_hostile(hostile, harmless):
    root = ET.fromstring(junit([hostile]).encode())
    for node in root.iter():
        for text in [node.text or "", *node.attrib.values()]:
            harmless(text)
    assert {node.tag for node in root.iter()} == {
        *("testsuites", "testsuite", "properties", "property", "testcase", "failure", "error")
    }


def test_huge(huge):
    assert len(junit([huge])) < 60_000
