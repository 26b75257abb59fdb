"""Make `.venv-libraries`, chapter 15's environment, beside `.venv`: `make libraries`. Does nothing if it is current.

It holds DeepSpeed and the others only. All else, torch among it, it sees in `.venv` through a .pth file, so that no
second torch is installed, and none of another build. What DeepSpeed could compile is left uncompiled.
"""

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRA = "libraries"
STAMP = "dtlearn-libraries.json"


def course_python(root: Path) -> Path:
    """The Python of `.venv`. Raises SystemExit if there is none."""
    python = root / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit("There is no .venv yet: `make lab` or `make test` makes it.")
    return python


def wanted(root: Path) -> list[str]:
    """What pyproject.toml names for the extra."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return list(project["optional-dependencies"][EXTRA])


def fingerprint(root: Path) -> dict[str, str]:
    """What decides what is installed: the folder, and the two files."""
    text = b"".join((root / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    return {"folder": str(root), "inputs": hashlib.sha256(text).hexdigest()}


def is_current(folder: Path, root: Path) -> bool:
    """Whether the last installation was complete, and of these files."""
    try:
        found = json.loads((folder / STAMP).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == fingerprint(root))


def site_packages(python: Path) -> Path:
    """Where a Python has its packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.check_output([python, "-c", code], text=True).strip())


def make_environment(folder: Path, root: Path) -> None:
    """Make an environment without packages of its own that sees those of `.venv`."""
    course = course_python(root)
    subprocess.run([course, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    own = site_packages(folder / "bin" / "python")
    line = f"import site; site.addsitedir({str(site_packages(course))!r})\n"
    (own / "dtlearn-course.pth").write_text(line, "utf-8")


def install(folder: Path, root: Path) -> None:
    """Install what the extra names, under the pins.

    Raises:
        SystemExit: pip failed; it has said why.
    """
    # DeepSpeed's sdist asks torch for its version while it is built: so without isolation, and nothing compiled.
    environment = {**os.environ, "DS_BUILD_OPS": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    command = [folder / "bin" / "python", "-m", "pip", "install", "-c", "constraints.txt", "--no-build-isolation"]
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    done = subprocess.run([*command, *quiet, *wanted(root)], cwd=root, env=environment, check=False)
    if done.returncode:
        raise SystemExit("pip could not install the libraries. Run `make libraries` again when the cause is gone.")


def main(root: Path = ROOT) -> Path:
    """Bring `.venv-libraries` up to date; its folder."""
    folder = root / ".venv-libraries"
    if is_current(folder, root):
        return folder
    print("Installing DeepSpeed, Megatron-core, FairScale and Transformers into .venv-libraries", flush=True)
    make_environment(folder, root)
    install(folder, root)
    (folder / STAMP).write_text(json.dumps(fingerprint(root)), "utf-8")
    return folder


if __name__ == "__main__":
    main()
