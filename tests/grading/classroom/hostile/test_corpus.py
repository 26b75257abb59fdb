"""A class of hostile hand-ins among honest ones: a bad row each, with a code of its own, and nothing else."""

import pytest

from dtlearn.grading.report.codes import meaning
from dtlearn.runtime.machine.isolation import probe
from dtlearn.runtime.machine.run_folder import delete_folder

from .a_class import finish, prepare, start
from .class_of_200 import grade_in_two_parts, is_settled, report, wrong_honest, wrong_rows
from .corpus import HAND_INS, SAFE_BELOW_LEVEL_2

pytestmark = pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine")
HONEST = 4
FEW = [one for one in HAND_INS if one.few]
GROUPS = [HAND_INS[k::4] for k in range(4)]


@pytest.fixture
def course(tmp_path):
    """A folder for a class, deleted afterwards: pytest's own way recurses, and ends at folders of 3,000 levels."""
    yield tmp_path / "course"
    for folder in list(tmp_path.iterdir()):
        delete_folder(folder)
    assert not list(tmp_path.iterdir())


def test_there_are_many_and_every_one_has_a_name_of_its_own():
    assert len({one.name for one in HAND_INS}) == len(HAND_INS) >= 80
    assert all(one.does for one in HAND_INS)
    codes = {code for one in HAND_INS for code in (*one.codes, *(one.open_codes or ()))} - {""}
    assert {code for code in codes if meaning(code, {}) == meaning("DTL-NO-SUCH-CODE", {})} == set()


def graded(root, hand_ins, level):
    """Grade the class; checks what holds for every class."""
    honest = prepare(root, hand_ins, HONEST)
    found = finish(root, start(root, level, "--workers", "2"), 500)
    assert found.status in (0, 3), found.printed
    assert not found.left
    assert "Traceback" not in found.printed
    assert not wrong_honest(found, honest)
    assert not found.told
    assert found.status == (0 if all(map(is_settled, found.rows.values())) else 3)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_class_with_hostile_hand_ins_that_is_interrupted(course):
    """Each of them is a bad row, nothing is lost or graded twice, nothing is left, nobody is told the seed."""
    made = grade_in_two_parts(course, 10, FEW[::5], 2, 250)
    assert not made.faults
    assert made.whole.memory["honest-0"] > 0 and made.whole.reading["honest-0"] > 0
    assert "faults: 0" in report(made, FEW[::5])


@pytest.mark.every_answer
@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_every_hostile_hand_in_is_a_bad_row(course, group):
    assert not wrong_rows(graded(course, GROUPS[group], 2), GROUPS[group], 2)


@pytest.mark.every_answer
@pytest.mark.timeout(900)
def test_below_level_2_what_is_written_is_no_more_trusted(course):
    """Only those that do no harm to the machine: nothing is hidden or shut in there."""
    assert not wrong_rows(graded(course, SAFE_BELOW_LEVEL_2, 1), SAFE_BELOW_LEVEL_2, 1)
