"""Make `.venv`, the environment of the course, and keep it current. `make lab` and `make test` run this first.

Only the standard library, and only syntax that Python 3.6 reads: an old Python then gets an explanation and not a
SyntaxError. The stamp in `.venv` is written last, so an interrupted installation is simply continued by the next call.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from bootstrap_python import (
    OLDEST,
    BootstrapError,
    check_can_make_environments,
    find_python,
    has_nvidia_gpu,
    python_version,
)

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "dtlearn-bootstrap.json"
# The one Linux build of torch on PyPI brings CUDA (gigabytes). The build without it lives here.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

OFFLINE = r"NewConnectionError|NameResolution|Failed to resolve|Network is unreachable|ProxyError|[Tt]imed out"
# What pip says -> what the user can do about it. The first match counts.
ADVICE = (
    (r"No space left on device", "The disk is full: the environment needs about 2 GB (8 GB with CUDA)."),
    (r"Permission denied|Read-only file system", "Something in .venv is not writable for you: is it another user's?"),
    (r"CERTIFICATE|SSLError", "The secure connection failed. Behind a company proxy, set PIP_CERT to its certificate."),
    (
        r"connection broken.*/whl/cpu/",
        "PyTorch's own package source does not answer. `make lab TORCH=cuda` takes the standard build from PyPI: "
        "gigabytes, but it works without a GPU too.",
    ),
    (OFFLINE, "A package source does not answer. Check the network; set HTTPS_PROXY, or PIP_INDEX_URL for a mirror."),
    (
        r"No matching distribution found for torch",
        "Your package sources have no such torch for this Python and machine. Another Python may help "
        "(make lab PYTHON=python3.12), or the standard build (make lab TORCH=cuda; gigabytes).",
    ),
)


class PipError(Exception):
    """pip failed; the text is what it wrote to its error stream."""


def choose_torch(asked):
    """Which build of torch this machine gets: "cpu" or "cuda", or "plain" where there is only one build."""
    if sys.platform != "linux":
        return "plain"
    return asked or ("cuda" if has_nvidia_gpu() else "cpu")


def inputs_hash():
    """Hash of the files that decide what is installed."""
    return hashlib.sha256(b"".join((ROOT / f).read_bytes() for f in ("pyproject.toml", "constraints.txt"))).hexdigest()


def read_stamp():
    """What the last complete installation wrote; {} if there is none, or it belongs to another folder."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    # The commands in .venv/bin name the folder that they were installed in: a copied environment is of no use.
    return stamp if stamp.get("folder") == str(ROOT) and PYTHON.exists() else {}


def must_rebuild(stamp, python_asked, torch_asked):
    """Whether `.venv` has to be made anew: there is none, it does not work, or it is not the one asked for."""
    if python_asked and python_version(python_asked) != python_version(PYTHON):
        return True
    if stamp:
        return bool(torch_asked) and choose_torch(torch_asked) != stamp["torch"]
    if (python_version(PYTHON) or (0, 0)) < OLDEST:
        return True
    try:  # not `python -m pip`: this shows that the commands in .venv/bin work and belong to this folder
        answer = subprocess.check_output([str(VENV / "bin" / "pip"), "--version"], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return True
    return os.fsencode(str(VENV)) not in answer


def clean_environment():
    """Environment variables for the child: without those that would install elsewhere or show it other packages."""
    drop = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return dict(kept, PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PYTHONIOENCODING="utf-8")


def make_venv(python):
    check_can_make_environments(python)
    command = [python, "-m", "venv", "--clear", str(VENV)]
    try:
        subprocess.check_output(command, stderr=subprocess.STDOUT, env=clean_environment())
    except subprocess.CalledProcessError as error:
        said = error.output.decode("utf-8", "replace").strip()
        raise BootstrapError(f"{VENV} could not be made. Is {ROOT} writable for you, and the disk not full?\n{said}")


def pip_install(*arguments, pins="constraints.txt"):
    """`pip install` under the pins; its progress is shown on a terminal. Raises PipError with its error output."""
    command = [str(PYTHON), "-m", "pip", "install", "-c", pins, *arguments]
    if not sys.stdout.isatty():
        command.append("--quiet")
    errors = []
    with subprocess.Popen(command, cwd=str(ROOT), env=clean_environment(), stderr=subprocess.PIPE) as process:
        for line in process.stderr:
            errors.append(line.decode("utf-8", "replace"))
            if "Retrying" in errors[-1] and not any("Retrying" in earlier for earlier in errors[:-1]):
                print("      a package source does not answer; pip tries a few times more", flush=True)
    if process.returncode:
        raise PipError("".join(errors))


def install_torch(build):
    """Install the pinned torch, and setuptools, with which the next step builds the project itself."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pin = re.search(r"^torch==\S+", text, re.MULTILINE).group()
    if build != "cpu":
        return pip_install(pin, "setuptools")
    # Where only "2.13.0" is offered, the pin beside "2.13.0+cpu" makes pip speak of a conflict, not of what is absent.
    other_pins = VENV / "pins-but-torch.txt"
    other_pins.write_text(text.replace(pin, ""), encoding="utf-8")
    wanted = (pin + "+cpu", "setuptools")
    try:  # a mirror, or a folder of wheels, may have it
        pip_install(*wanted, pins=str(other_pins.relative_to(ROOT)))
    except PipError as error:
        if re.search(OFFLINE, str(error)) or "No matching distribution" not in str(error):
            raise
        print(f"      pip's own sources do not have this build; asking {TORCH_CPU_INDEX}", flush=True)
        pip_install(*wanted, "--extra-index-url", TORCH_CPU_INDEX, pins=str(other_pins.relative_to(ROOT)))


def explain(error):
    """The message for a failed pip: its last lines, then what to try."""
    noise = r"^\s*$|is ignored: it is neither|Retry\(total=[1-9]"
    lines = [line for line in str(error).splitlines() if not re.search(noise, line)]
    last = ["  | " + line.strip()[:200] for line in lines[-6:]]
    advice = [text for pattern, text in ADVICE if re.search(pattern, str(error))][:1]
    again = "Then run the same command again: it continues. `make clean` first makes it start from nothing."
    return "\n".join(["pip failed. Its last lines:", *last, *advice, again])


@contextlib.contextmanager
def step(number, text):
    print(f"[{number}/3] {text}", flush=True)
    start = time.time()
    yield
    print(f"      done in {time.time() - start:.1f} s", flush=True)


@contextlib.contextmanager
def alone():
    """Wait until no other bootstrap works in this folder: two at once would ruin each other's `.venv`."""
    import fcntl  # not on Windows, whose users `main` sends away first

    folder = os.open(str(ROOT), os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another installation into this folder is under way; waiting for it.", flush=True)
            fcntl.flock(folder, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(folder)


def bootstrap(extras, python_asked, torch_asked):
    """Bring `.venv` up to date; returns at once if it is."""
    stamp = read_stamp()
    rebuild = must_rebuild(stamp, python_asked, torch_asked)
    have = set() if rebuild else set(stamp.get("extras", ()))
    if stamp and not rebuild and stamp["inputs"] == inputs_hash() and extras <= have:
        return
    start = time.time()
    extras = sorted(extras | have)
    build = choose_torch(torch_asked) if rebuild or not stamp else stamp["torch"]
    if rebuild:
        python = find_python(python_asked)
        with step(1, "making .venv with {} (Python {}.{})".format(python, *python_version(python))):
            make_venv(python)
    else:
        print("[1/3] .venv is there (Python {}.{})".format(*python_version(PYTHON)), flush=True)
        STAMP.write_text("{}", encoding="utf-8")  # from here on it is incomplete
    name = {"cpu": "its CPU build", "cuda": "its CUDA build", "plain": "its build for this system"}[build]
    with step(2, f"installing torch, {name} (the largest part)"):
        install_torch(build)
    with step(3, "installing dtlearn and what it needs" + (", extras: " + ", ".join(extras) if extras else "")):
        pip_install("--no-build-isolation", "--editable", ".[{}]".format(",".join(extras)) if extras else ".")
    made = {"folder": str(ROOT), "inputs": inputs_hash(), "extras": extras, "torch": build}
    STAMP.write_text(json.dumps(made), encoding="utf-8")
    print(f"The environment is ready after {time.time() - start:.0f} s.", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Make .venv, the environment of the course, and keep it current.")
    parser.add_argument("--extras", default="", help="extras of pyproject.toml to install as well, such as: test")
    parser.add_argument("--python", help="the Python to use, a name or a path (default: this one, if new enough)")
    parser.add_argument("--torch", choices=("cpu", "cuda"), help="build of torch on Linux (default: is there a GPU?)")
    options = parser.parse_args(arguments)
    try:
        if os.name == "nt":
            raise BootstrapError("dtlearn runs on Linux and macOS. On Windows, use it inside WSL 2.")
        with alone():
            bootstrap({name for name in options.extras.split(",") if name}, options.python, options.torch)
    except PipError as error:
        print("\n" + explain(error), file=sys.stderr)
        return 1
    except BootstrapError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"\n{error}\nIs {ROOT} writable for you, and the disk not full?", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again: it continues.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
