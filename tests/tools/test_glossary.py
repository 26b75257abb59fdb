"""One data file, from which every chapter's table of terms is made, with one Chinese term for one English one."""

import re
from pathlib import Path

import pytest
from glossary import PLACE, GlossaryError, Term, glossary_table, read_terms

from dtlearn.course import load_course

ROOT = Path(__file__).resolve().parents[2]
TERMS = read_terms(ROOT / "notebooks" / "glossary.toml")
READY = [chapter.slug for chapter in load_course(ROOT).chapters if chapter.status == "ready"]
CHINESE = re.compile("[\u4e00-\u9fff]")


def write(folder, text):
    path = folder / "glossary.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("slug", READY)
def test_each_chapter_has_its_table_from_the_file(slug):
    source = (ROOT / "notebooks" / "src" / f"{slug}.py").read_text(encoding="utf-8")
    assert source.count(PLACE) == 1
    assert "| English |" not in source
    rows = glossary_table(TERMS, slug[:4]).splitlines()[2:]
    assert 9 <= len(rows) <= 24


def test_chapters_of_terms_are_chapters():
    known = {chapter.slug[:4] for chapter in load_course(ROOT).chapters}
    assert {chapter for term in TERMS for chapter in term.meanings} <= known


@pytest.mark.parametrize("slug", READY)
def test_a_chapters_terms_occur_in_its_text(slug):
    text = (ROOT / "notebooks" / "src" / f"{slug}.py").read_text(encoding="utf-8").lower()
    for term in (term for term in TERMS if slug[:4] in term.meanings):
        words = [word.removesuffix("s") for word in re.findall(r"[a-z0-9]{3,}", term.en.lower())]
        assert any(word in text for word in words), f"{term.en}: {slug} does not use it"


def test_each_term_has_chinese():
    assert [term.en for term in TERMS if not CHINESE.search(term.zh)] == []


def test_a_table_has_its_chapters_terms_only():
    terms = [Term("a", "甲", {"ch01": "first", "ch02": "second"}), Term("b", "乙", {"ch02": "third"})]
    assert glossary_table(terms, "ch02").splitlines()[2:] == ["| a | 甲 | second |", "| b | 乙 | third |"]
    with pytest.raises(GlossaryError, match="no term of ch03"):
        glossary_table(terms, "ch03")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[term]]\nen = "a"\nch01 = "x"', "en, zh"),
        ('[[term]]\nen = "a"\nzh = "甲"', "a meaning"),
        ('[[term]]\nen = "a"\nzh = "甲"\nch01 = ""', "a meaning"),
        ('[[term]]\nen = "a"\nzh = "甲"\nch01 = "x"\nzn = "y"', "zn"),
        ('[[term]]\nen = "a"\nzh = "甲"\nch01 = "x"\n' * 2, "twice"),
        ('[[term]]\nen = "b"\nzh = "乙"\nch01 = "x"\n[[term]]\nen = "a"\nzh = "甲"\nch01 = "x"', "order"),
    ],
)
def test_faults_are_named(tmp_path, text, says):
    with pytest.raises(GlossaryError, match=says):
        read_terms(write(tmp_path, text))
