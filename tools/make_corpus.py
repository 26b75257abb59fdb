"""Make the text corpus of `dtlearn.models` from the Python documentation: `python tools/make_corpus.py [--check]`.

The source is `pydoc_data.topics`, which comes with CPython and changes from release to release. Only the release named
below gives the shipped text. With `--check` nothing is written: that release rebuilds the text and compares it; any
other Python can only verify the hash of the file that is there, and says so.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path

from dtlearn.models.corpus import FILE_NAME, verified

PATH = Path(__file__).resolve().parents[1] / "dtlearn" / "models" / "data" / FILE_NAME
SOURCE_RELEASE = "CPython 3.11.7"
SOURCE_SHA256 = (
    "71f2ff5d99bdc1f9c48c5c2353ad138201c5ca1c377e0226857ef8fa89b8bcee"  # of the topics, joined by an empty line
)
UNDERLINE = re.compile(r'\n[*=\-~"^]{3,}$')  # of a heading; its character says how deep the heading is


def read_source() -> dict[str, str] | None:
    """The topics by name, or None if this Python has other topics than the source release."""
    from pydoc_data.topics import topics

    joined = "\n\n".join(topics.values())
    return topics if hashlib.sha256(joined.encode()).hexdigest() == SOURCE_SHA256 else None


def paragraphs(text: str) -> set[str]:
    """The paragraphs of a topic, without the underline of a heading, which depends on where the topic stands."""
    return {UNDERLINE.sub("", part.strip("\n")) for part in text.split("\n\n")}


def without_repeats(topics: dict[str, str]) -> dict[str, str]:
    """The topics that are not wholly part of longer ones: else much of the validation text would be in the training."""
    kept: set[str] = set()
    seen: set[str] = set()
    for name in sorted(topics, key=lambda name: -len(topics[name])):
        if not paragraphs(topics[name]) <= seen:
            kept.add(name)
            seen |= paragraphs(topics[name])
    return {name: text for name, text in topics.items() if name in kept}


def make_corpus(topics: dict[str, str]) -> str:
    """The text of the corpus: the topics that are kept, in the order of the source, joined by an empty line."""
    return "\n\n".join(text.strip("\n") for text in without_repeats(topics).values()) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the text corpus of dtlearn.models.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the shipped file is not right")
    check = parser.parse_args(argv).check
    topics = read_source()
    if topics is None and not check:
        print(
            f"make_corpus: this Python is not {SOURCE_RELEASE}: its documentation gives another text", file=sys.stderr
        )
        return 1
    if topics is not None:
        text = make_corpus(topics)
        if not check:
            PATH.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {PATH.name}: {len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()}")
        elif not PATH.exists() or PATH.read_text(encoding="utf-8") != text:
            print(f"make_corpus: {PATH} is not what {SOURCE_RELEASE} gives", file=sys.stderr)
            return 1
    try:
        verified(PATH.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        print(f"make_corpus: {error}", file=sys.stderr)
        return 1
    how = "rebuilt and equal" if topics is not None else f"hash verified; only {SOURCE_RELEASE} can rebuild it"
    print(f"{PATH.name} is right ({how})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
