import re
from pathlib import Path

import dtlearn
from dtlearn.checks import meanings
from dtlearn.grading.report.codes import category, meaning


def test_every_code_of_the_package_has_a_meaning():
    root = Path(dtlearn.__file__).parent
    codes = {
        c for file in root.rglob("*.py") for c in re.findall(r'"(DTL-[A-Z0-9]+(?:-[A-Z0-9]+)*)"', file.read_text())
    }
    assert len(codes) > 30
    assert [c for c in sorted(codes) if meaning(c, meanings()) == "a fault"] == []


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
