"""`python -m dtlearn.libraries.hello_deepspeed`. Exit codes: 0 done; 2 refused, the message says why."""

from __future__ import annotations

import os
import sys

from .loop import train
from .options import parse


def say(line: str) -> None:
    """Print a line at once: launchers hold back what is buffered."""
    print(line, flush=True)


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit code; argparse itself exits for a wrong option."""
    options = parse(argv)
    try:
        train(options, say)
    except ValueError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"hello_deepspeed: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
