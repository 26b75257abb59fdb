"""Entries of a file of published numbers, and how a prediction is judged.

The form is that of `published_runs.json` beside this file: `entries`, each with `id`, `group`, `kind`,
`planner_target`, `inputs`, `expected`, `unit` and `tolerance` (`{"rel": 0.15}` or `{"abs": 1.0}`; of both
either will do).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BUILT_IN = Path(__file__).parent / "published_runs.json"


class CannotPredict(ValueError):
    """An entry lacks what a prediction needs, or asks for what the planner does not know."""


@dataclass(frozen=True)
class PublishedNumber:
    """One published number. Everything but `id` and `target` may be missing in the file."""

    id: str
    target: str
    group: str = ""
    kind: str = ""
    unit: str = ""
    expected: Any = None
    inputs: dict[str, Any] = field(default_factory=dict)
    tolerance: dict[str, float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Identifier, unit and textual inputs, in lower case: what an entry says beside its numbers."""
        texts = [str(value) for value in self.inputs.values() if isinstance(value, str)]
        return " ".join([self.id, self.unit, *texts]).lower()

    def accepts(self, value: float) -> bool:
        """Whether a prediction is inside the tolerance; without one, within 10 %."""
        if isinstance(self.expected, bool) or not isinstance(self.expected, int | float) or not math.isfinite(value):
            return False
        error = abs(value - self.expected) * (1 - 1e-12)
        tolerance = {name: number for name, number in self.tolerance.items() if isinstance(number, int | float)}
        if not tolerance.keys() & {"abs", "rel"}:
            tolerance = {"rel": 0.1}
        bounds = (tolerance.get("abs", -1.0), tolerance.get("rel", -1.0) * abs(self.expected))
        return any(error <= bound + 1e-9 * abs(self.expected) for bound in bounds if bound >= 0)


def read_entries(path: Path | str = BUILT_IN) -> list[PublishedNumber]:
    """All entries of a file.

    Raises:
        ValueError: no such file, no JSON, or no list of entries in it.
    """
    try:
        content = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:  # no text, no JSON, or a number of thousands of digits
        raise ValueError(f"cannot read {path}: {error}; expected a JSON file with a list of `entries`") from error
    except RecursionError:
        raise ValueError(
            f"cannot read {path}: its lists are nested too deeply; expected a JSON file with a list of `entries`"
        ) from None
    rows = content.get("entries") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise ValueError(f"{path} has no list of `entries`; take the form of {BUILT_IN.name}")
    return [_entry(row, number) for number, row in enumerate(rows)]


def _entry(row: Any, number: int) -> PublishedNumber:
    if not isinstance(row, dict):
        return PublishedNumber(f"entry {number}", "", kind="not an object")
    inputs, tolerance, expected = row.get("inputs"), row.get("tolerance"), row.get("expected")
    return PublishedNumber(
        id=str(row.get("id", f"entry {number}")),
        target=str(row.get("planner_target", "")),
        group=str(row.get("group", "")),
        kind=str(row.get("kind", "")),
        unit=str(row.get("unit", "")),
        expected=_readable(expected),
        inputs=inputs if isinstance(inputs, dict) else {},
        tolerance={name: _readable(value) for name, value in tolerance.items()} if isinstance(tolerance, dict) else {},
    )


def _readable(value: Any) -> Any:
    """NaN, infinity and whole numbers that no float holds stay as their text: nothing is compared with them."""
    if isinstance(value, int):
        return str(value) if value.bit_length() > 1000 else value
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)
