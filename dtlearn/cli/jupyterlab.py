"""`dtlearn lab`: JupyterLab, opened at a chapter, with this environment's Python as its kernel."""

import argparse
import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from ..course import Chapter, Course, load_course
from ..grading.learner.workplace import own_copy, own_notebook, renew, sentence, update
from ..runtime.device import place
from ..runtime.errors import LaunchError
from ..runtime.machine.cores import num_cores
from ..runtime.machine.namespaces import die_with_parent
from ..runtime.machine.patience import TO_END_KERNELS, TO_LISTEN, Patience
from ..runtime.machine.processes import has_ended, take_endings
from .arguments import add_example_parser, own_address, port
from .kernel import kernels_of_lab

FIRST = "ch01_ranks"
INSTALL = "`make lab` in the course's folder installs what was tested."
_EVERYWHERE = ("", "*", "0.0.0.0", "::")  # addresses to listen on, but none to connect to


def add_command(commands: Any) -> None:
    parser = add_example_parser(
        commands,
        "lab",
        "Open JupyterLab at a chapter. Ctrl-C ends it, with all kernels and ranks.",
        "dtlearn lab ch01 --no-browser     print the address instead of opening a browser",
        run,
    )
    parser.add_argument("chapter", nargs="?", default=FIRST, help=f"ch01 or ch01_ranks (default: {FIRST})")
    parser.add_argument(
        "--fresh", action="store_true", help="begin the chapter anew; the notebook that you have is kept in work/kept/"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--port", type=port, help="the port to try first (default: 8888); if taken, another is used")
    parser.add_argument(
        "--ip", type=own_address, help="the address to listen on (default: localhost, for this machine only)"
    )
    update = add_example_parser(
        commands,
        "update",
        "Bring your copies of notebooks to the course's version, as after a `git pull`. Your answers stay, and so do "
        "the notebooks that you have: they are kept in work/kept/.",
        "dtlearn update ch01",
        run_update,
    )
    update.add_argument("chapter", nargs="?", help="ch01 or ch01_ranks (default: all)")


def run(options: argparse.Namespace) -> int:
    """Open the chapter that the options name."""
    course = load_course()
    if options.fresh:
        print(renew(course, find_chapter(course, options.chapter), with_answers=False))
    return open_jupyterlab(course, options.chapter, options.no_browser, options.port, options.ip)


def run_update(options: argparse.Namespace) -> int:
    """Update the copies of one chapter, or of all."""
    course = load_course()
    names = [options.chapter] if options.chapter else [chapter.slug for chapter in course.chapters if chapter.ready]
    for name in names:
        print(update(course, find_chapter(course, name)))
    return 0


def open_jupyterlab(
    course: Course, name: str, no_browser: bool = False, port: int | None = None, ip: str | None = None
) -> int:
    """Run JupyterLab at a chapter until it is interrupted. Returns the exit code.

    Raises:
        ValueError: there is no such chapter, or it has no notebook yet.
        LaunchError: JupyterLab or its kernel is not usable here.
    """
    chapter = find_chapter(course, name)
    if problem := installation_problem():
        raise LaunchError(f"{problem}. {INSTALL}")
    environment = server_environment(os.environ)
    own = own_notebook(course, chapter).relative_to(course.root)
    print(f"{chapter.title}: {chapter.question} ({own})")
    state = own_copy(course, chapter)
    if state != "current":
        print(sentence(state, course, chapter))
    print(where_ranks_run(chapter.ranks, num_cores(), _num_gpus()), flush=True)
    command = server_command(course.root, own, no_browser, port, ip, os.geteuid() == 0)
    # Its own session: Ctrl-C reaches this process alone, which then ends the server without a question.
    server = subprocess.Popen(
        command,
        cwd=course.root,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, signal.SIGTERM),  # when `dtlearn lab` is killed
    )
    try:
        take_endings()  # a closed terminal ends the server as Ctrl-C does
        info = _wait_for_server(server)
        if info is not None:
            print(f"\n  {notebook_url(info, own)}\n")
            if "SSH_CONNECTION" in os.environ and not ip:
                tunnel = f"{info['port']}:localhost:{info['port']}"
                print(f"Over ssh, first on your own computer: ssh -L {tunnel} THIS_MACHINE")
            print("Ctrl-C ends JupyterLab, its kernels and their ranks.", flush=True)
        server.wait()
    except KeyboardInterrupt:
        _stop(server)
        print("\nJupyterLab has ended, and its kernels and ranks with it.", flush=True)
        return 0
    finally:
        _stop(server)
    if server.returncode:
        raise LaunchError(f"JupyterLab ended (exit code {server.returncode}); what it said is above")
    return 0


def find_chapter(course: Course, name: str) -> Chapter:
    """The chapter to open. Raises ValueError if there is none of that name, or none to open yet."""
    chapter = course.chapter(name)
    if not chapter.ready:
        ready = ", ".join(c.slug for c in course.chapters if c.ready)
        raise ValueError(f"{chapter.slug} is not written yet; the chapters that you can open: {ready}")
    if not (course.root / chapter.notebook).is_file():
        raise ValueError(
            f"{chapter.notebook} is missing from {course.root}. "
            f"`git checkout {chapter.notebook}` brings it back; `make notebooks` builds it anew."
        )
    return chapter


def server_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The server's environment variables, from this process's.

    The course's kernel comes first: a kernel `python3` that the user installed from another Python, in
    ~/.local/share/jupyter or on JUPYTER_PATH, would otherwise run the notebooks without dtlearn.
    """
    path = os.pathsep.join([kernels_of_lab(environment), *filter(None, [environment.get("JUPYTER_PATH")])])
    # Without this default JupyterLab asks each newcomer about news, over the text; news_url alone does not stop it.
    settings = str(Path(__file__).with_name("jupyterlab_settings"))
    config = os.pathsep.join([settings, *filter(None, [environment.get("JUPYTER_CONFIG_PATH")])])
    # With a token of ours the server does not print its own three addresses beside the one that we print.
    return {"JUPYTER_TOKEN": secrets.token_hex(24), **environment, "JUPYTER_PATH": path, "JUPYTER_CONFIG_PATH": config}


def server_command(
    root: Path, notebook: Path, no_browser: bool, port: int | None, ip: str | None, is_root: bool
) -> list[str]:
    """The command line of the server."""
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/tree/{quote(notebook.as_posix())}",
        # No pop-ups, and no questions to hosts outside.
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--Application.log_level=WARN",
        "--LabApp.log_level=WARN",
        # Kernels talk to the server encrypted: on a shared machine, and so that none prints a warning that it doesn't.
        "--KernelManager.transport_encryption=auto",
    ]
    command += ["--no-browser"] if no_browser else []
    command += [f"--port={port}"] if port else []
    command += [f"--ip={ip}"] if ip else []
    command += ["--allow-root"] if is_root else []
    return command


def installation_problem() -> str:
    """What keeps notebooks from opening with this environment's Python, in one clause; "" if nothing does."""
    for package in ("jupyterlab", "ipykernel"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed in {sys.prefix}"
    return ""


def where_ranks_run(ranks: int, cores: int, num_gpus: int) -> str:
    """One line for a person: how many ranks, on what."""
    shared = f", sharing {cores} core{'s' * (cores > 1)}" if cores < ranks else f", {cores} cores"
    return f"Up to {ranks} ranks run here{shared}: {place(ranks, num_gpus)}"


def notebook_url(info: dict[str, Any], notebook: Path) -> str:
    """The address of the notebook on the server that wrote `info`, its `jpserver-PID.json`."""
    url = f"{info['url']}lab/tree/{quote(notebook.as_posix())}"
    return f"{url}?{urlencode({'token': info['token']})}" if info["token"] else url


def _num_gpus() -> int:
    """GPUs that torch sees. Without an NVIDIA driver there are none; then torch need not be loaded to know."""
    if shutil.which("nvidia-smi") is None:
        return 0
    from ..runtime.agent.client import get_agent

    with contextlib.closing(get_agent()) as agent:
        return int(agent.hello()["num_gpus"])


def _wait_for_server(server: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """What the server says of itself, once it answers; None if it ended or takes too long."""
    from jupyter_client.connect import jupyter_runtime_dir

    file = Path(jupyter_runtime_dir(), f"jpserver-{server.pid}.json")
    patience = Patience(TO_LISTEN, [server.pid])
    while server.poll() is None and not patience.over():
        with contextlib.suppress(OSError, ValueError):  # not there yet, half written, or nobody listens yet
            info: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            # It writes that file before it listens.
            host = "localhost" if info["hostname"] in _EVERYWHERE else info["hostname"]
            socket.create_connection((host, info["port"]), timeout=1).close()
            return info
        time.sleep(0.05)
    return None


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server. It ends its kernels; a kernel that loses its server ends itself, and its ranks with it."""
    if server.poll() is None:
        server.terminate()
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C: at once
            has_ended(server, TO_END_KERNELS)
        server.kill()
        server.wait()
