from html.parser import HTMLParser

from dtlearn.grading.classroom.summary import summarise
from dtlearn.grading.classroom.summary_html import summary_html


def read(text):
    tags, words = [], []
    parser = HTMLParser(convert_charrefs=True)
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)
    parser.handle_data = words.append
    parser.feed(text)
    return set(tags), "".join(words)


def test_golden(a_class, golden):
    golden("class.summary.html", summary_html(summarise(a_class, meanings={})))


def test_says_the_same_as_the_console(a_class):
    _, text = read(summary_html(summarise(a_class, meanings={})))
    for part in ("6 submissions", "1 of 6 passed", "2 of 6", "DTL-COLL-SKIP", "a collective that not all ranks call"):
        assert part in text
    assert "eve" in text


def test_hostile(hostile, harmless):
    tags, text = read(summary_html(summarise({"<script>x": [hostile]}, meanings={})))
    assert "script" not in tags
    assert "img" not in tags
    harmless(text)
