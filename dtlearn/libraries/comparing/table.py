"""All runs side by side: equal losses, and what each library sends, holds and needs written."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

from .result import LibraryResult


def comparison_rows(results: Mapping[str, LibraryResult]) -> list[dict[str, Any]]:
    """A row for each run: title, last loss, calls and bytes of rank 0's step, ring bytes, memory, milliseconds."""
    return [
        {
            "run": name,
            "library": result.title,
            "last loss": round(result.losses[-1], 5),
            "calls": sum(row.calls for row in result.calls),
            "payload, kB": round(sum(row.nbytes for row in result.calls) / 1000, 1),
            "sent in rings, kB": round(result.wire_bytes / 1000, 1),
            "by kind, kB": ", ".join(f"{kind} {sent / 1000:.0f}" for kind, sent in sent_by_kind(result).items()),
            "kept, kB": round(max(result.state_bytes) / 1000),
            "peak, kB": round(max(result.peak_bytes) / 1000),
            "step, ms": round(result.seconds * 1000),
        }
        for name, result in results.items()
    ]


def sent_by_kind(result: LibraryResult) -> dict[str, float]:
    """Bytes that a rank sends in a step if every collective is a ring, by kind; those of a kilobyte and more.

    Norms and flags are below it. The mean over the ranks, in the order of the first call.
    """
    sent: dict[str, float] = {}
    for rows in result.ranks:
        for row in rows:
            kind = row.op.removesuffix("_tensor").removesuffix("_into").replace("_", "-")
            sent[kind] = sent.get(kind, 0.0) + row.wire_bytes / len(result.ranks)
    return {kind: total for kind, total in sent.items() if total >= 1000}


def call_rows(result: LibraryResult, rank: int = 0) -> list[dict[str, Any]]:
    """A row for each kind of call of a rank's step, in the order of the first.

    Raises:
        ValueError: the run has no such rank.
    """
    if rank not in range(len(result.ranks)):
        raise ValueError(f"rank must be 0 to {len(result.ranks) - 1}, got {rank!r}")
    return [
        {
            "phase": row.phase,
            "call": row.op + (f" ({row.reduce_op})" if row.reduce_op else ""),
            "ranks": row.group_size,
            "dtype": row.dtype,
            "calls": row.calls,
            "kB": round(row.nbytes / 1000, 1),
        }
        for row in result.ranks[rank]
    ]


def lines_of(code: Any) -> int:
    """Lines that one has to write for a way to train: of a function or a class, without its docstring and blanks."""
    source = textwrap.dedent(inspect.getsource(code))
    texts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    docstrings = [node.body[0] for node in texts if ast.get_docstring(node) is not None]
    left_out = {line for text in docstrings for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}
    return sum(1 for number, line in enumerate(source.splitlines(), 1) if line.strip() and number not in left_out)
