"""Why a prediction comes out as it does, and the right letter of a choice: `notebooks/answers/chNN.toml`.

    [late]
    choice = "B"
    explain = "All wait for rank 2, which sleeps {seconds:.1f} s."

They stand apart from the notebook, so that nobody reads them below the question before answering it.
"""

import re
import tomllib

from ...course import find_root


def find_answer(id: str) -> dict[str, str]:
    """The entry of a prediction: `explain`, and `choice` of several options. Raises ValueError: there is none."""
    if not re.fullmatch(r"ch\d\d\.[a-z][a-z0-9_]*", id):
        raise ValueError(f"{id!r} is no id of a prediction: it must look like ch01.late")
    chapter, _, name = id.partition(".")
    file = f"notebooks/answers/{chapter}.toml"
    try:
        entries = tomllib.loads((find_root() / file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if name not in entries:
        raise ValueError(f"{file} has no [{name}], which is the answer to {id}")
    entry: dict[str, str] = entries[name]
    return entry


def explanation(id: str, entry: dict[str, str], values: dict[str, object]) -> str:
    """The entry's text with the values put in. Raises ValueError if it names one that is not there."""
    try:
        return entry["explain"].format(**values)
    except (LookupError, ValueError, TypeError) as error:
        there = ", ".join(values) or "none"
        raise ValueError(f"the explanation of {id} does not fit what reveal() was given ({there}): {error!r}") from None
