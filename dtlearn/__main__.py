"""`python -m dtlearn`: the command, where the script `dtlearn` is not on the path."""

import sys

from dtlearn.cli import main

if __name__ == "__main__":
    sys.exit(main())
