"""Which files are libraries: known by what they are, wherever the interpreter that reads a stack has its own."""

import contextlib
import functools
import importlib.util
import os
import re
import sysconfig
from pathlib import Path

# Folders of installed packages and of Python's own modules have these names on every machine.
_INSTALLED = re.compile(
    r"[/\\](?:(?:site|dist)-packages|lib(?:32|64)?[/\\]python3\.\d+t?(?:\.zip)?)[/\\]", re.IGNORECASE
)
# What stands between a rank and the learner's code. `pip install --target` and a build from source name no such folder.
_BETWEEN = ("torch", "ipykernel")


@functools.cache
def _roots() -> tuple[str, ...]:
    """Folders of this machine: this package's runtime, Python, its commands, and where torch and ipykernel are."""
    roots = {str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "platstdlib", "scripts"))}
    for name in _BETWEEN:
        with contextlib.suppress(ImportError, ValueError):
            if (spec := importlib.util.find_spec(name)) is not None and spec.origin:
                package = Path(spec.origin).parent
                roots.add(str(package))
                if list(package.parent.glob(f"{name}-*.dist-info")):  # all that is beside it was installed, too
                    roots.add(str(package.parent))
    # faulthandler writes names in ASCII, with escapes: a folder "ü" is "\\xfc" there.
    roots |= {root.encode("ascii", "backslashreplace").decode() for root in roots}
    return tuple(root + os.sep for root in sorted(roots))


@functools.lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Whether a file is a library's or Python's: no learner's code, on whichever machine it lies."""
    return file.startswith(("<frozen", "<string>", *_roots())) or _INSTALLED.search(file) is not None
