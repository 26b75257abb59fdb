"""Make `.venv-EXTRA` beside `.venv`, for an extra of pyproject.toml: `tools/extra_environment.py watching`.

It holds what the extra names, and what that needs, only. All else, torch among it, it sees in `.venv` through a .pth
file: no second torch is installed, and a learner's environment stays as small as it is. Does nothing if it is current.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = "dtlearn-extra.json"


def course_python(root: Path) -> Path:
    """The Python of `.venv`. Raises SystemExit if there is none."""
    python = root / ".venv" / "bin" / "python"
    if not python.exists():
        raise SystemExit("There is no .venv yet: `make lab` or `make test` makes it.")
    return python


def wanted(extra: str, root: Path) -> list[str]:
    """What pyproject.toml names for the extra. Raises SystemExit for one that it does not have."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    if extra not in extras:
        raise SystemExit(f"pyproject.toml has no extra {extra!r}; it has {', '.join(extras)}")
    return extras[extra]


def fingerprint(extra: str, root: Path) -> dict[str, object]:
    """What decides what is installed: the folder, the names, and the pins."""
    pins = hashlib.sha256((root / "constraints.txt").read_bytes()).hexdigest()
    return {"folder": str(root), "wanted": wanted(extra, root), "pins": pins}


def is_current(folder: Path, extra: str, root: Path) -> bool:
    """Whether the last installation was complete, and of these files."""
    try:
        found = json.loads((folder / STAMP).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == fingerprint(extra, root))


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


def install(folder: Path, extra: str, root: Path) -> None:
    """Install what the extra names, under the pins.

    Raises:
        SystemExit: pip failed; it has said why.
    """
    # Without isolation: what asks for torch while it is built finds the one that is there.
    environment = {**os.environ, "DS_BUILD_OPS": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    command = [folder / "bin" / "python", "-m", "pip", "install", "-c", "constraints.txt", "--no-build-isolation"]
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    done = subprocess.run([*command, *quiet, *wanted(extra, root)], cwd=root, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"pip could not install the extra {extra}. Run this again when the cause is gone.")


def bring_up_to_date(extra: str, root: Path = ROOT) -> Path:
    """Make the environment of an extra anew, unless it is current; its folder."""
    folder = root / f".venv-{extra}"
    if is_current(folder, extra, root):
        return folder
    print(f"Installing {', '.join(wanted(extra, root))} into {folder.name}", flush=True)
    make_environment(folder, root)
    install(folder, extra, root)
    (folder / STAMP).write_text(json.dumps(fingerprint(extra, root)), "utf-8")
    return folder


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Bring .venv-EXTRA up to date.")
    parser.add_argument("extra", help="of pyproject.toml, such as watching")
    bring_up_to_date(parser.parse_args(argv).extra)


if __name__ == "__main__":
    main()
