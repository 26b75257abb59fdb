"""How one rank failed: what kind of failure it is, and which of several explains the others."""

import pytest

from dtlearn.runtime.faults.failure import Failure, first_cause_first, is_peer_loss


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        ("[/pytorch/third_party/gloo/x.cc:1] Connection closed by peer [127.0.0.1]:3", True),
        ("Timed out waiting 5000ms for recv operation", True),
        ("expected scalar type Float but found Int", False),
        ("", False),
    ],
)
def test_the_text_of_a_lost_peer_is_known(message, lost):
    assert is_peer_loss(message) is lost


def test_the_first_cause_is_the_earliest_that_is_no_consequence():
    died = Failure(1, "killed", "SIGKILL", "was killed", time_ns=1_050_000_000)  # noticed a little late
    aborted = Failure(2, "killed", "SIGABRT", "was killed", time_ns=1_050_000_000)
    raised = Failure(0, "raised", "KeyError", "x", time_ns=1_000_000_000)
    lost = Failure(3, "raised", "RuntimeError", "Connection closed by peer", time_ns=1, consequence=True)
    stopped = Failure(4, "raised", "KeyboardInterrupt", "", time_ns=1)
    assert [f.rank for f in first_cause_first([lost, stopped, aborted, raised, died])] == [1, 0, 2, 4, 3]


@pytest.mark.parametrize(
    ("kind", "type_", "message", "code"),
    [
        ("raised", "KeyError", "x", "DTL-RAISED"),
        ("raised", "SystemExit", "0", "DTL-RANK-EXIT"),
        ("ended", "", "ended", "DTL-RANK-EXIT"),
        ("killed", "SIGKILL", "was killed", "DTL-RANK-KILLED"),
        ("killed", "SIGKILL", "killed: the machine ran out of memory", "DTL-OOM"),
        ("raised", "MemoryError", "", "DTL-OOM"),
        ("raised", "RuntimeError", "[enforce fail] can't allocate memory: 8 bytes", "DTL-OOM"),
        # One answer for the code and for the words of the advice: see the next test.
        ("raised", "_ArrayMemoryError", "Unable to allocate 8.00 TiB for an array", "DTL-OOM"),
        ("raised", "RuntimeError", "std::bad_alloc", "DTL-OOM"),
        ("raised", "OSError", "[Errno 12] Cannot allocate memory", "DTL-OOM"),
        ("raised", "RuntimeError", "can't start new thread", "DTL-RAISED"),  # too many of them, or no memory
        ("raised", "AcceleratorError", "CUDA error: out of memory", "DTL-OOM"),
    ],
)
def test_the_code_says_what_kind_of_failure_it_is(kind, type_, message, code):
    assert Failure(0, kind, type_, message).code == code
    assert Failure(0, kind, type_, message, consequence=True).code == "DTL-RANK-LOST"


def test_only_memory_of_the_processor_is_what_a_limit_of_memory_explains():
    assert Failure(0, "raised", "_ArrayMemoryError", "").is_out_of_memory
    assert not Failure(0, "raised", "AcceleratorError", "CUDA error: out of memory").is_out_of_memory


def test_a_long_message_keeps_its_ends_only():
    failure = Failure.raised(0, "ValueError", "a" * 10**6 + "end", "b" * 10**6, 0)
    assert len(failure.message) < 11_000 and len(failure.traceback) < 11_000
    assert failure.message.startswith("aaa") and failure.message.endswith("end") and "characters" in failure.message
