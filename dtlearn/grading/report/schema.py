"""The JSON Schema of a stored verdict: `schema/verdict-1.json`, the contract with everything that reads one."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from ..verdict import FORMAT


def verdict_schema() -> dict[str, Any]:
    """The schema of what `Verdict.to_json` writes in this version (JSON Schema, draft 2020-12)."""
    file = resources.files(__package__) / "schema" / f"verdict-{FORMAT}.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema
