"""Where committed predictions stay between runs: one small file beside the notebook.

A file that cannot be read or written costs the learner nothing but the memory of an answer: the lesson goes on.
"""

import json
from pathlib import Path
from typing import Any

from ...runtime.machine.whole_file import write_whole

STORE = Path(".dtlearn") / "predictions.json"  # under the notebook's folder, which is its kernel's working folder


def kept(key: str) -> Any:
    """The answer kept under that key; None if there is none or the file cannot be read."""
    try:
        entry = _read().get(key)
    except (OSError, ValueError):
        return None
    return entry.get("answer") if isinstance(entry, dict) else None


def keep(key: str, question: str, answer: float | str) -> str:
    """Keep an answer. Returns "", or a sentence that says why it is not kept."""
    try:
        data = _read()
        data[key] = {"question": question, "answer": answer}
        STORE.parent.mkdir(exist_ok=True)
        write_whole(STORE, json.dumps(data, indent=1, ensure_ascii=False))
    except OSError as error:
        return f"It is not kept for the next run: {STORE.as_posix()} cannot be written ({error.strerror})."
    except ValueError:
        return f"It is not kept for the next run: {STORE.as_posix()} is damaged; delete it to start anew."
    return ""


def _read() -> dict[str, Any]:
    try:
        data = json.loads(STORE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if not isinstance(data, dict):
        raise ValueError("not a table of answers")
    return data
