import base64
import io
import re
import xml.etree.ElementTree as ET

import pytest
from PIL import Image

from dtlearn.viz.picture import Picture, folded, save_svg, show
from dtlearn.viz.ranks.timeline import timeline
from tests.viz.records import all_reduce_run

SVG = "{http://www.w3.org/2000/svg}"


def picture(alt="Three ranks."):
    return Picture(timeline(all_reduce_run()), alt)


def test_a_figure_needs_alt_text():
    with pytest.raises(ValueError, match="alt text"):
        picture("  ")


def test_png_is_the_same_every_time_and_small():
    first, second = picture().png(), picture().png()
    assert first == second
    assert len(first) < 60_000
    image = Image.open(io.BytesIO(first))
    assert image.width == 2 * picture().width
    assert "Software" not in image.info
    assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_bundle_has_picture_and_words():
    data, metadata = picture("A <b> & c")._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == "Figure: A <b> & c"
    assert metadata["image/png"]["alt"] == "A <b> & c"
    assert "A &lt;b&gt; &amp; c" in picture("A <b> & c").describe()["text/html"]
    assert 'alt="A &lt;b&gt; &amp; c"' in picture("A <b> & c").img()


def test_show_displays_picture_then_words(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(list(data)))
    assert show(timeline(all_reduce_run()), alt="Three ranks.") is None
    assert shown == [["image/png", "text/plain"], ["text/html", "text/plain"]]


def test_svg_has_title_and_description_and_no_date(tmp_path):
    paths = [
        save_svg(timeline(all_reduce_run()), tmp_path / "ch01 ränge" / f"{i}.svg", "A & B", "Three <ranks>.")
        for i in range(2)
    ]
    first, second = (p.read_text(encoding="utf-8") for p in paths)
    assert first == second
    root = ET.fromstring(first)
    assert root.attrib["role"] == "img"
    assert root.find(f"{SVG}title").text == "A & B"
    assert root.find(f"{SVG}desc").text == "Three <ranks>."
    assert not re.search(r"20\d\d-\d\d-\d\d|Matplotlib v", first)


def test_svg_without_words_is_refused(tmp_path):
    with pytest.raises(ValueError, match="title and a description"):
        save_svg(timeline(all_reduce_run()), tmp_path / "a.svg", "Title", "")


def test_what_is_folded_shows_its_summary_as_text():
    assert folded("a < b", "<p>c</p>") == "<details><summary>a &lt; b</summary><p>c</p></details>"
