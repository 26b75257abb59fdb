"""What `bootstrap.py` finds on this machine: a Python that is new enough, and whether there is an NVIDIA GPU.

Only the standard library, and only syntax that Python 3.6 reads: see `bootstrap.py`.
"""

import shutil
import subprocess
import sys
from glob import glob

OLDEST = (3, 11)
OTHER_PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14")


class BootstrapError(Exception):
    """Something that the user can act on; the text says what."""


def python_version(python):
    """Version of that interpreter (a name or a path) as (major, minor), or None if it does not run."""
    code = "import sys; print('%d %d' % sys.version_info[:2])"
    try:
        text = subprocess.check_output([str(python), "-c", code], stderr=subprocess.DEVNULL, universal_newlines=True)
        major, minor = text.split()
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    return int(major), int(minor)


def find_python(asked=None):
    """Path of an interpreter that is new enough: the one asked for, else this one, else a newer one on PATH.

    Raises:
        BootstrapError: there is none; the text names the version found and says what to do.
    """
    if asked:
        path = shutil.which(asked)
        version = path and python_version(path)
        if not version:
            raise BootstrapError(f"{asked} is not a Python that runs here.")
        if version >= OLDEST:
            return path
        found = f"{asked} is Python {version[0]}.{version[1]}"
    else:
        if sys.version_info >= OLDEST:
            return sys.executable
        for name in OTHER_PYTHONS:
            path = shutil.which(name)
            if path and (python_version(path) or (0, 0)) >= OLDEST:
                return path
        found = "{} is Python {}.{}.{}".format(sys.executable, *sys.version_info[:3])
    raise BootstrapError(
        f"dtlearn needs Python {OLDEST[0]}.{OLDEST[1]} or newer, but {found}.\n"
        "Install a newer one beside it (Debian, Ubuntu: sudo apt install python3.12-venv; macOS: brew install\n"
        "python@3.13; or conda, see environment.yml) and name it: make lab PYTHON=/path/to/python3.12"
    )


def check_can_make_environments(python):
    """Raises BootstrapError where the system ships Python without its `venv` part, as Debian and Ubuntu do."""
    if subprocess.call([python, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL):
        package = "python{}.{}-venv".format(*python_version(python))
        raise BootstrapError(
            f"{python} cannot make environments: its venv module is not installed.\n"
            f"On Debian and Ubuntu: sudo apt install {package}. Then run the same command again."
        )


def has_nvidia_gpu():
    """Whether this machine has an NVIDIA GPU with a driver."""
    if glob("/dev/nvidia[0-9]*"):
        return True
    command = shutil.which("nvidia-smi")
    return bool(command) and subprocess.call([command, "-L"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
