"""`python -m dtlearn.train`.

Exit codes: 0 done; 1 the last checkpoint could not be written, or a bug (with a stack trace); 2 refused, the message
says why; 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

from __future__ import annotations

import os
import sys

from .loop import train
from .options import parse
from .ranks.rank_0 import TrainError, is_rank_0


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit code; argparse itself exits for a wrong option."""
    options = parse(argv)
    # One message for each machine: most are the same everywhere, but a GPU may be missing on one of them only.
    speaks = is_rank_0() or os.environ.get("LOCAL_RANK") == "0"
    try:
        result = train(options)
    except TrainError as error:
        if speaks:
            print(f"train: {error}", file=sys.stderr, flush=True)
        return 2
    if result.stopped_by:
        return 128 + result.stopped_by
    return 1 if result.unsaved else 0


if __name__ == "__main__":
    sys.exit(main())
