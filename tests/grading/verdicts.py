"""Verdicts made by hand, and hostile texts, for the tests of what is printed and written of them."""

from dataclasses import replace

from dtlearn.grading.verdict import Result, Verdict

ID, TITLE = "ch03.average_gradients", "Average the gradients"
VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "dtlearn": "0.1.0"}


def ok(case, size, **more):
    return Result(case, size, "passed", seconds=0.04, bytes=4096 * size, messages=2 * size, **more)


def verdict(state, results, score=0.0, **more):
    filled = {"seconds": 1.24, "seed": 20261120, "attempt": 3, "versions": VERSIONS, **more}
    return Verdict(ID, TITLE, state, score, 5.0, results=tuple(results), **filled)


def make_verdicts():
    sizes = (1, 2, 3, 4)
    all_right = [ok(case, n) for n in sizes for case in ("even parts", "uneven parts")]
    missed = "optimal: at most 8,192 bytes per rank with 4 ranks (uneven parts); yours: 16,384"
    value = Result(
        "uneven parts",
        3,
        "failed",
        "DTL-VALUE-FACTOR",
        "the result is exactly 3x the reference on every rank; 3 is the world size",
        advice="You summed and did not average.",
        rank=0,
        seconds=0.05,
        bytes=12288,
        messages=6,
    )
    skip = Result(
        "even parts",
        2,
        "failed",
        "DTL-COLL-SKIP",
        "rank 0 waits in its third all_reduce, which rank 1 never calls",
        (
            "  rank 0  waits     all_reduce #3 SUM float32 (1024, 768)  "
            "line 25: dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)",
            "  rank 1  returned  no such call",
            "Every rank of a group must make the same collective calls. "
            "The others wait in theirs until their time-out.",
            "Look for an `if` or an early `return` around the call that depends on the rank or on its data.",
            "Already the second all_reduce came from different lines (rank 0 line 25, rank 1 line 29): "
            "look there first.",
        ),
        rank=0,
        line=25,
        seconds=0.3,
    )
    late = Result(
        "even parts",
        2,
        "timeout",
        "DTL-TIMEOUT",
        "the ranks did not finish within 10 s",
        (
            "  rank 0 waits in the first all_reduce (line 12): dist.all_reduce(x)",
            "  rank 1 is running, at line 9 in average_gradients",
            "rank 0 waited for a call that rank 1 never made: every rank of a group has to make the same collective "
            "calls in the same order.",
        ),
        rank=1,
        seconds=10.0,
    )
    not_run = "not run: 'even parts' with 2 ranks did not end in time"
    broken = Result(
        "uneven parts",
        2,
        "error",
        "DTL-GRADER",
        "the grader failed (KeyError: 'x'); this is not your fault",
        (
            "Traceback (most recent call last):",
            '  File "dtlearn/grading/judging/judge.py", line 40, in judge',
            "KeyError: 'x'",
        ),
    )
    stub = Result("even parts", 1, "not-attempted", "DTL-STUB", "not attempted yet", seconds=0.03)
    hidden = [
        ok("even parts", 2),
        ok("secret sizes", 2, hidden=True),
        replace(value, case="secret sizes", hidden=True, line=31, details=("secret details",)),
        ok("secret order", 3, hidden=True),
    ]
    skipped = [Result(c, n, "skipped", "DTL-SKIPPED", not_run) for n in (2, 3) for c in ("even parts", "uneven parts")]
    return {
        "optimal": verdict("passed", all_right, 5.0, tier="optimal"),
        "correct": verdict("passed", all_right, 5.0, tier="good", notes=(missed, "the output was cut")),
        "value": verdict("failed", [*all_right[:5], value, ok("even parts", 4), replace(value, world_size=4)], 3.3333),
        "hang": verdict("failed", [*all_right[:2], skip, replace(skip, case="uneven parts")], 0.0),
        "timeout": verdict("timeout", [*all_right[:2], late, *skipped[1:]], 0.0, seconds=11.2),
        "stub": verdict("not-attempted", [stub], 0.0),
        "error": verdict("error", [*all_right[:3], broken], 0.0),
        "hidden": verdict("failed", hidden, 3.75, notes=("good: at most 1 bytes with 3 ranks (secret sizes)",)),
    }


NASTY = {
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x1b[ \x1b",
    "control": "".join(map(chr, range(32))) + "\x7f\x85\x9f",
    "surrogate": "broken \ud800 \udfff text \ufffe\uffff",
    "cdata": "]]> <![CDATA[ --> <!-- &amp; &#0;",
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><b>",
    "formula": "=cmd|' /C calc'!A0",
    "formula2": "\t@SUM(1+1);=1+1",
    "bidi": "admin\u202e\u2066 gnp.exe\u200b",
    "path": 'File "/home/ada lovelace/course/x.py", line 3; /tmp/secret-dir/rank0.log C:\\Users\\ada\\x.py',
    "markup": "`x` **bold** | a | b |\n# head",
}


def hostile_verdict(text):
    nasty = Result(text, 2, "failed", "DTL-VALUE", text, (text, "  " + text, "Traceback " + text), advice=text)
    error = Result(text, 3, "error", "DTL-GRADER", text, (text,))
    return replace(verdict("failed", [nasty, error], notes=(text,), isolation=text), title=text, versions={text: text})
