"""The words and the arrangement that the console and the notebook share."""

from collections.abc import Sequence

from ...runtime.words import counted
from ..verdict import LEFT_OUT, Outcome, Result, Verdict

STATES = {
    "passed": "passed",
    "failed": "failed",
    "timeout": "timed out",
    "crashed": "crashed",
    "not-attempted": "not attempted",
    "skipped": "not run",
    "error": "not graded",
}
# In a cell of the grid.
MARKS = {
    "passed": "ok",
    "failed": "FAIL",
    "timeout": "TIMEOUT",
    "crashed": "CRASH",
    "not-attempted": "todo",
    "skipped": "-",
    "error": "ERROR",
}
NOT_YOUR_FAULT = "The grader itself failed. This is not your fault, it costs you nothing, and your answer is kept."
SEND_THIS = "Send these lines to whoever runs your course; if you study alone, report them as an issue of the course:"


def number(value: float) -> str:
    return f"{round(value, 2):g}"


def state_words(verdict: Verdict) -> str:
    """ "passed", "failed", "passed so far"."""
    words = STATES[verdict.state]
    return f"{words} so far" if verdict.withheld and verdict.state == "passed" else words


def score_words(verdict: Verdict) -> str:
    """ "2.5 of 5 points", with the tier where there are budgets; "" if there is nothing to say."""
    if verdict.withheld or not verdict.final:
        return ""
    return f"{number(verdict.score)} of {number(verdict.points)} point{'s' * (verdict.points != 1)}"


def tier_words(verdict: Verdict) -> str:
    """The tier, where the exercise has more than one: without budgets every right answer is just "correct"."""
    has_more = verdict.tier in ("good", "optimal") or bool(next_tier(verdict))
    return verdict.tier if verdict.passed and has_more else ""


def next_tier(verdict: Verdict) -> str:
    """What the next tier asks for; "" if there is none."""
    for note in verdict.notes:
        tier, colon, text = note.partition(": ")
        if colon and tier in ("good", "optimal"):
            return f"For {tier}: {text}"
    return ""


def other_notes(verdict: Verdict) -> list[str]:
    """Why cases were left out, and all notes that are not about a tier."""
    why = [r.headline.removeprefix("not judged: ") for r in verdict.results if r.code in LEFT_OUT]
    left_out = [f"not every case was judged: {text}. Grade again when less runs on this machine." for text in why[:1]]
    return left_out + [n for n in verdict.notes if n.partition(": ")[0] not in ("good", "optimal")]


def withheld_words(verdict: Verdict) -> str:
    n = verdict.withheld
    return f"{n} hidden case{'s' * (n != 1)} count{'s' * (n == 1)} too; score and results come after the due date."


def meta_words(verdict: Verdict) -> str:
    """ "attempt 3, 1.2 s"."""
    parts = [f"attempt {verdict.attempt}"] if verdict.attempt else []
    parts += [f"{verdict.seconds:.1f} s"] if verdict.seconds else []
    return ", ".join(parts)


def where(result: Result) -> str:
    """ "uneven parts, 3 ranks"."""
    parts = [result.case] if result.case else []
    parts += [counted(result.world_size, "rank")] if result.world_size else []
    return ", ".join(parts)


def other_faults(verdict: Verdict) -> str:
    """The faults besides the one that is shown: the cases with its code, and of each other code the first, with what
    it says; "" if there are none. Where the one shown names a mistake, plain wrong values count as the same."""
    shown = verdict.first_fault
    rest = [r for r in verdict.results if r.state not in ("passed", "skipped") and r is not shown]
    alike = (verdict.code, "DTL-VALUE", "DTL-WS") if shown and shown.is_specific else (verdict.code,)
    same = [where(r) for r in rest if r.code in alike]
    more = f", and {len(same) - 4} more" if len(same) > 4 else ""
    parts = [f"Also wrong: {'; '.join(same[:4])}{more}."] if same else []
    for code in list(dict.fromkeys(r.code for r in rest if r.code not in alike))[:3]:
        result = next(r for r in rest if r.code == code)
        said = f": {result.headline}" if result.headline else ""
        parts.append(f"And another fault, {where(result)} [{code}]{said}.")
    return " ".join(parts)


def hint_command(verdict: Verdict) -> str:
    return f"dtlearn hint {verdict.exercise}"


def repeat_command(verdict: Verdict) -> str:
    """Grades with the same inputs; "" if the seed is not to be told."""
    return f"dtlearn grade {verdict.exercise} --seed {verdict.seed}" if verdict.seed else ""


def not_attempted(verdict: Verdict) -> str:
    fault = verdict.first_fault
    missing = fault is not None and fault.code == "DTL-MISSING"
    why = fault.headline if fault and missing else "not attempted yet"
    return f"{why[:1].upper()}{why[1:]}. To begin: {hint_command(verdict)}"


def grid(results: Sequence[Result]) -> tuple[list[int], list[tuple[str, list[Outcome | None]]]]:
    """World sizes, and for each case its states in that order; None where a case was not tried."""
    placed = [r for r in results if r.case and r.world_size]
    sizes = sorted({r.world_size for r in placed})
    states: dict[str, dict[int, Outcome]] = {}
    for result in placed:
        states.setdefault(result.case, {})[result.world_size] = result.state
    return sizes, [(case, [of.get(size) for size in sizes]) for case, of in states.items()]


def blocks(lines: Sequence[str]) -> list[tuple[bool, list[str]]]:
    """Details in parts: (True, lines) keep their form, such as tables and tracebacks; (False, lines) are prose."""
    parts: list[tuple[bool, list[str]]] = [(False, [])]
    for line in lines:
        fixed, part = parts[-1]
        indented = line.startswith((" ", "> "))  # a table marks a row with ">"
        if not line.strip():
            parts.append((False, []))
        elif part and part[0].startswith("Traceback"):  # it ends with the line of the exception
            part.append(line)
            if not indented:
                parts.append((False, []))
        elif line.startswith("Traceback") or indented != fixed or not part:
            parts.append((indented or line.startswith("Traceback"), [line]))
        else:
            part.append(line)
    return [(fixed, part) for fixed, part in parts if part]


def report_lines(verdict: Verdict) -> list[str]:
    """What to send when the grader failed."""
    fault = next((r for r in verdict.results if r.state == "error"), None)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(verdict.versions.items()))
    rows = [
        ("exercise", verdict.exercise + (f", attempt {verdict.attempt}" if verdict.attempt else "")),
        ("case", where(fault) if fault else ""),
        ("seed", str(verdict.seed) if verdict.seed else ""),
        ("versions", versions),
        ("isolation", verdict.isolation),
        ("fault", f"{fault.code}: {fault.headline}" if fault else "no case was run"),
    ]
    lines = [f"{name:<10} {text}" for name, text in rows if text]
    return lines + [f"  {line}" for line in fault.details] if fault else lines
