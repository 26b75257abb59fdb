import importlib
import pkgutil
import re
from pathlib import Path

import dtlearn
from dtlearn import checks
from dtlearn.checks import meanings
from dtlearn.grading.report.codes import _MEANINGS, category, meaning


def test_every_code_of_the_package_has_a_meaning():
    root = Path(dtlearn.__file__).parent
    codes = {
        c for file in root.rglob("*.py") for c in re.findall(r'"(DTL-[A-Z0-9]+(?:-[A-Z0-9]+)*)"', file.read_text())
    }
    assert len(codes) > 30
    assert [c for c in sorted(codes) if meaning(c, meanings()) == "a fault"] == []


def test_no_code_has_two_meanings():
    chapters = [
        importlib.import_module(f"dtlearn.checks.{module.name}") for module in pkgutil.iter_modules(checks.__path__)
    ]
    tables = [_MEANINGS, *(chapter.MEANINGS for chapter in chapters if hasattr(chapter, "MEANINGS"))]
    pairs = {pair for table in tables for pair in table.items()}
    codes = [code for code, _ in pairs]
    assert len(tables) > 4 and sorted(c for c in set(codes) if codes.count(c) > 1) == []


def test_unknown_codes_have_that_of_their_family():
    assert meaning("DTL-VALUE-OF-ITS-OWN") == "wrong values"
    assert meaning("DTL-NEW") == "a fault"
    assert meaning("") == ""


def test_a_caller_may_know_more_codes():
    more = {"DTL-VALUE-OF-ITS-OWN": "its own words"}
    assert meaning("DTL-VALUE-OF-ITS-OWN", more) == "its own words"
    assert meaning("DTL-VALUE-OTHER", more) == "wrong values"


def test_categories():
    assert category("DTL-P2P-CYCLE") == ("DTL-P2P", "a communication fault")
    assert category("DTL-VALUE-FACTOR") == ("DTL-VALUE", "wrong values")
    assert category("DTL-GRADER") == ("DTL-GRADER", "the grader itself failed")
    assert category("DTL-NEW-ONE") == ("DTL-NEW", "a fault")
