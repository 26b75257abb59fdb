from html.parser import HTMLParser

import pytest

from dtlearn.grading.report.html import bundle, html, running, running_bundle

NAMES = ["optimal", "correct", "value", "hang", "timeout", "stub", "error", "hidden"]
VOID = {"br"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that the tags are nested."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], set(), [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def handle_comment(self, data):
        raise AssertionError("a comment")


TAGS = {"section", "strong", "code", "div", "p", "br", "table", "thead", "tbody", "tr", "th", "td", "span", "pre"}


def check(text):
    reader = Reader(text)
    assert reader.tags <= TAGS | {"progress", "details", "summary"}
    names = {"style", "role", "aria-label", "scope", "tabindex", "value", "max"}
    assert {name for name, _ in reader.attributes} <= names
    assert not [v for n, v in reader.attributes if n == "style" and ("url" in v or "import" in v)]
    return "".join(reader.text)


@pytest.mark.parametrize("name", NAMES)
def test_golden(verdicts, golden, name):
    text = html(verdicts[name])
    check(text)
    golden(f"{name}.html", text)


def test_golden_running(verdicts, golden):
    verdict = verdicts["value"]
    text = running(verdict.exercise, verdict.title, verdict.results[:6], 6, 8)
    assert "6 of 8 runs" in check(text)
    golden("running.html", text)


def test_states_can_be_told_without_colour(verdicts):
    words = {"optimal": "✓ Passed", "value": "✗ Failed", "timeout": "Timed out", "error": "Not graded"}
    for name, word in words.items():
        assert word in check(html(verdicts[name]))


def test_running_before_the_first_result_and_with_hidden_ones(verdicts):
    assert "0 of 8 runs" in check(running("ch01.x", "X", [], 0, 8))
    assert running_bundle("ch01.x", "X", [], 0, 8)["text/plain"] == "0 of 8"
    made = running_bundle("ch01.x", "X", verdicts["hidden"].results, 4, 8)
    assert "secret" not in made["text/html"] + made["text/plain"]


def test_bundle_has_a_plain_form(verdicts):
    assert set(bundle(verdicts["hang"])) == {"text/html", "text/plain"}


def test_many_lines_are_folded(verdicts):
    from dataclasses import replace

    verdict = verdicts["hang"]
    fault = replace(verdict.results[2], details=tuple(f"  line {k}" for k in range(60)))
    text = html(replace(verdict, results=(fault,)))
    assert "60 lines" in check(text)
    assert "<details>" in text


def test_hostile(hostile, harmless):
    harmless(check(html(hostile)))
    harmless(check(running(hostile.exercise, hostile.title, hostile.results, 1, 2)))


def test_huge(huge):
    assert len(html(huge)) < 60_000
