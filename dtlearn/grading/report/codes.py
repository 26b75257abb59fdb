"""What the diagnosis codes mean, in a few words: for class summaries, and for learners who see the category only.

Codes that only one chapter's exercises use are told by the package of its checks: see `dtlearn.checks.meanings`.
"""

from collections.abc import Mapping

_MEANINGS = {
    "DTL-ASYNC": "a result used before it was there",
    "DTL-ASYNC-REUSE": "a tensor changed while it was being sent",
    "DTL-ASYNC-WAIT": "a result read before wait()",
    "DTL-COLL": "collective calls that do not fit together",
    "DTL-COLL-DTYPE": "different dtypes in one collective",
    "DTL-COLL-GROUPS": "groups used in different orders",
    "DTL-COLL-OP": "different reductions in one collective",
    "DTL-COLL-ORDER": "collectives in different orders",
    "DTL-COLL-ROOT": "different roots in one collective",
    "DTL-COLL-SHAPE": "different shapes in one collective",
    "DTL-COLL-SPLITS": "all-to-all splits that do not fit",
    "DTL-CANNOT-TELL": "ranks that wait, nobody can tell for what",
    "DTL-COLL-SKIP": "a collective that not all ranks call",
    "DTL-DIFFICULTY": "right in the plain case, wrong in a harder one",
    "DTL-GRADER": "the grader itself failed",
    "DTL-INIT": "process groups that do not come up",
    "DTL-INTERRUPTED": "interrupted",
    "DTL-LAUNCH": "ranks that could not be started",
    "DTL-LEAK": "something left behind after the run",
    "DTL-LIMIT": "a hand-in that takes too much to read",
    "DTL-LOAD": "not judged, the machine was too busy",
    "DTL-LOOP": "a loop that does not end",
    "DTL-MISSING": "no answer handed in",
    "DTL-MISTAKE": "a mistake that others make too",
    "DTL-MUTATED": "inputs that were changed",
    "DTL-NOT-SENDABLE": "a value that cannot travel between notebook and ranks",
    "DTL-OOM": "out of memory",
    "DTL-P2P": "sends and receives that do not fit together",
    "DTL-P2P-CYCLE": "ranks that all send first",
    "DTL-P2P-DTYPE": "a send and a receive of different dtypes",
    "DTL-P2P-NO-SEND": "ranks that all receive, and nobody sends",
    "DTL-P2P-SIZE": "a send and a receive of different sizes",
    "DTL-P2P-TAG": "a send and a receive with different tags",
    "DTL-P2P-UNMATCHED": "a send or a receive without its other half",
    "DTL-RAISED": "an exception",
    "DTL-RANK": "a rank that ended early",
    "DTL-RANK-EXIT": "a rank that left before the end",
    "DTL-RANK-KILLED": "a rank that was killed or crashed",
    "DTL-RANK-STOPPED": "a rank that was stopped by a signal",
    "DTL-RANK-LOST": "a rank that was lost",
    "DTL-RESULT": "a result that cannot be compared",
    "DTL-RULE": "a broken rule on the communication",
    "DTL-RULE-BYTES": "too many bytes",
    "DTL-RULE-CALLS": "other calls than the exercise asks for",
    "DTL-RULE-MEMORY": "too much memory",
    "DTL-RULE-NAME": "the course's own answer, or another name that the exercise rules out",
    "DTL-RULE-MESSAGES": "too many messages",
    "DTL-RULE-ROUNDS": "too many messages one after the other",
    "DTL-RULE-ROUTE": "messages that go to other ranks than they may",
    "DTL-RULE-SCHEDULE": "calls in the wrong order in time",
    "DTL-SKIPPED": "not run",
    "DTL-SKIPPED-TIME": "not run for want of time",
    "DTL-STRAGGLER": "a rank that is much slower than the others",
    "DTL-STUB": "not attempted",
    "DTL-SYNTAX": "no valid Python",
    "DTL-TAMPERED": "a rank's line or record of calls, written to by the answer",
    "DTL-TIMEOUT": "no end within the time limit",
    "DTL-UNJUDGED": "data that the check cannot read",
    "DTL-UNREADABLE": "handed in, and not read",
    "DTL-USE": "something that the ranks cannot do now",
    "DTL-VALUE": "wrong values",
    "DTL-VALUE-DTYPE": "the wrong dtype",
    "DTL-VALUE-FACTOR": "off by a constant factor",
    "DTL-VALUE-NAN": "NaN in the result",
    "DTL-VALUE-NONE": "nothing returned",
    "DTL-VALUE-NOT-NEW": "the input itself where a new tensor is expected",
    "DTL-VALUE-PERMUTED": "right values in the wrong places",
    "DTL-VALUE-SHAPE": "the wrong shape",
    "DTL-VALUE-SIGN": "the wrong sign",
    "DTL-VALUE-STALE": "values that never changed",
    "DTL-VALUE-TRANSPOSED": "a transposed result",
    "DTL-VALUE-TYPE": "the wrong type",
    "DTL-WS": "right at some world sizes only",
}
# What a hidden case gives away: less than the code.
_CATEGORIES = {
    "a communication fault": ("DTL-COLL", "DTL-P2P", "DTL-INIT", "DTL-ASYNC"),
    "wrong values": ("DTL-VALUE", "DTL-WS", "DTL-RESULT", "DTL-MUTATED"),
    "a broken rule on the communication": ("DTL-RULE",),
    "a rank that ended early": ("DTL-RANK", "DTL-OOM", "DTL-LEAK", "DTL-TAMPERED"),
    "no end within the time limit": ("DTL-TIMEOUT", "DTL-LOOP", "DTL-STRAGGLER"),
    "an exception": ("DTL-RAISED", "DTL-SYNTAX"),
}


def meaning(code: str, more: Mapping[str, str] | None = None) -> str:
    """A few words on a code, such as "DTL-VALUE-FACTOR"; on its family if the code itself is not known; "" for no code.
    `more`: the meanings of further codes, such as those of the chapters."""
    known, rest = _MEANINGS | dict(more or {}), code
    while rest and rest not in known:
        rest = rest.rpartition("-")[0]
    return known.get(rest, "a fault" if code else "")


def category(code: str) -> tuple[str, str]:
    """The family of a code and the words for it: "DTL-VALUE-FACTOR" -> ("DTL-VALUE", "wrong values")."""
    family = "-".join(code.split("-")[:2])
    words = next((words for words, families in _CATEGORIES.items() if family in families), "")
    return family, words or meaning(family)
