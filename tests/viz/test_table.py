import xml.etree.ElementTree as ET

import pytest

from dtlearn.viz.table import rank_table

ROWS = [{"rank": 0, "device": "cpu", "bytes": 37672}, {"rank": 1, "device": "<gpu>", "bytes": 8}]


def test_text_is_aligned():
    assert str(rank_table(ROWS, "Where ranks run")).splitlines() == [
        "Where ranks run",
        "rank  device   bytes",
        "----  ------  ------",
        "   0  cpu     37,672",
        "   1  <gpu>        8",
    ]


def test_html_has_caption_and_headers():
    table = ET.fromstring(rank_table(ROWS, "A & B")._repr_html_())
    assert table.find("caption").text == "A & B"
    assert [(th.text, th.attrib["scope"]) for th in table.find("thead/tr")] == [
        ("rank", "col"),
        ("device", "col"),
        ("bytes", "col"),
    ]
    row = list(table.findall("tbody/tr")[1])
    assert [(c.tag, c.text) for c in row] == [("th", "1"), ("td", "<gpu>"), ("td", "8")]
    assert row[0].attrib["scope"] == "row"


def test_values_as_text():
    row = {"a": 0.123456, "b": True, "c": None, "d": 123456.7}
    assert rank_table([row], "x").rows == (("0.1235", "True", "None", "123,457"),)


def test_rows_must_agree():
    with pytest.raises(ValueError, match="row 1 has columns"):
        rank_table([{"a": 1}, {"b": 1}], "x")
    with pytest.raises(ValueError, match="at least one row"):
        rank_table([], "x")


def test_a_long_caption_has_several_lines():
    caption = rank_table(ROWS, "medians & more " * 12)._repr_html_().partition("</caption>")[0].partition(">")[2]
    lines = caption.partition(">")[2].split("<br>")
    assert len(lines) == 2 and " ".join(lines) == ("medians &amp; more " * 12).strip()
