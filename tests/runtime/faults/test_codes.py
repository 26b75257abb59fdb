import re
from pathlib import Path

import pytest

import dtlearn.runtime
from dtlearn.runtime import errors
from dtlearn.runtime.errors import RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.faults.codes import ADVICE
from dtlearn.runtime.faults.diagnosis import Diagnosis
from dtlearn.runtime.faults.failure import Failure


@pytest.mark.parametrize("code", ADVICE)
def test_every_code_has_a_reason_and_a_remedy(code):
    text = str(Diagnosis(code, "rank 1 did it", (1,)))
    assert f"rank 1 did it  [{code}]" in text
    assert all(part in text for part in ADVICE[code])


@pytest.mark.parametrize("code", [code for code in ADVICE if "COLL" in code or "P2P" in code])
def test_what_ranks_do_to_each_other_is_said_of_gloo_and_of_nccl(code):
    why = ADVICE[code][0]
    assert "gloo" in why and "NCCL" in why


def test_every_code_that_the_runtime_names_is_in_the_table():
    folder = Path(dtlearn.runtime.__file__).parent
    named = set().union(*(re.findall(r'"(DTL-[A-Z0-9-]*[A-Z])"', file.read_text()) for file in folder.rglob("*.py")))
    assert named <= ADVICE.keys()


def test_every_error_carries_a_code():
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.DtlearnError) and hasattr(kind, "code"):
            assert kind.code in ADVICE
    assert RankError("x").code in ADVICE
    assert RanksTimeout("x").code == "DTL-TIMEOUT"
    found = Diagnosis("DTL-LOOP", "x", (0,))
    assert RanksTimeout("x", diagnosis=found).code == RanksDisagree(found).code == "DTL-LOOP"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Failure(0, "raised", "ValueError", "x"), "DTL-RAISED"),
        (Failure(0, "raised", "SystemExit", "0"), "DTL-RANK-EXIT"),
        (Failure(0, "ended", "", "ended (exit code 0) before it finished"), "DTL-RANK-EXIT"),
        (Failure(0, "killed", "SIGKILL", "was killed by signal 9 (SIGKILL)"), "DTL-RANK-KILLED"),
        (Failure(0, "killed", "SIGKILL", "was killed by signal 9, because the machine ran out of memory"), "DTL-OOM"),
        (Failure(0, "raised", "MemoryError", ""), "DTL-OOM"),
        (Failure(0, "raised", "RuntimeError", "DefaultCPUAllocator: can't allocate memory"), "DTL-OOM"),
        (Failure(0, "raised", "RuntimeError", "Connection closed by peer", consequence=True), "DTL-RANK-LOST"),
    ],
)
def test_the_code_of_a_failure_tells_its_kind(failure, code):
    assert RankError("x", (failure,)).code == code
