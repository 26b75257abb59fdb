"""Sizes that do not fit: whether they are a ValueError that names both numbers."""

from __future__ import annotations

from collections.abc import Mapping

from dtlearn.grading import Finding


def refusal(note: Mapping[str, str], where: str, size: int, num_ranks: int, rank: int) -> Finding | None:
    """What is wrong with how an answer refuses what does not fit.

    Args:
        note: what the rank tells: "raised", the type of the exception or "", and "text", what it says.
        where: which sizes do not fit.
        size, num_ranks: the numbers that the message has to name.
        rank: who tells it.
    """
    if note["raised"] != "ValueError":
        what = f"{note['raised']} was raised" if note["raised"] else "nothing was raised"
        return Finding("DTL-VALUE-UNCHECKED", f"{where}; a ValueError is asked, and {what}", rank)
    words = "".join(c if c.isdigit() else " " for c in note["text"]).split()
    if missing := [n for n in (size, num_ranks) if str(n) not in words]:
        text = f"{where}; the message of the ValueError has to name both numbers, and {missing[0]} is not in it"
        return Finding("DTL-VALUE-ERROR-TEXT", text, rank)
    return None
