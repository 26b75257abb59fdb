"""`dtlearn kernel install`: the course as a Jupyter kernel, whose notebooks know its magics from the first cell on.

`dtlearn lab` gives that kernel to its own JupyterLab. VS Code, a hub and any other JupyterLab find it once it is
installed; there the wrong Python is the usual mistake.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runtime.errors import LaunchError
from ..runtime.machine.whole_file import write_whole
from .arguments import add_example_parser

NAME, SHOWN = "dtlearn", "Distributed training (dtlearn)"
EXTENSION = "dtlearn.notebook"  # not "dtlearn": `%load_ext dtlearn` would say that it is loaded already


def add_command(commands: Any) -> None:
    summary = "Make the course's kernel known to VS Code, hubs and other JupyterLabs."
    example = "dtlearn kernel install     for you; on a hub, for all: --prefix /usr/local"
    parser = add_example_parser(commands, "kernel", summary, example, run)
    parser.add_argument("action", choices=["install"], metavar="install")
    parser.add_argument("--prefix", metavar="FOLDER", help="install it under this folder, not for your user only")


def run(options: argparse.Namespace) -> int:
    """Install the kernel and say where it is, and what to do with it.

    Raises LaunchError: the folder cannot be written.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    place: dict[str, Any] = {"prefix": options.prefix} if options.prefix else {"user": True}
    with tempfile.TemporaryDirectory() as folder:
        write_kernel(Path(folder), SHOWN)
        try:
            where = KernelSpecManager().install_kernel_spec(folder, NAME, **place)
        except OSError as error:
            raise LaunchError(f"the kernel was not installed: {error.filename}: {error.strerror}") from error
    print(f"The kernel {SHOWN!r} is in {where}; it runs {sys.executable}.")
    print("Choose it as the kernel of a notebook in work/; `dtlearn update` makes the notebooks if they are not there.")
    print(f"`jupyter kernelspec remove {NAME}` removes it.")
    return 0


def write_kernel(folder: Path, shown: str) -> None:
    """Write the description of a kernel that runs on this Python and loads the magics when it starts."""
    from ipykernel.kernelspec import get_kernel_dict

    spec = {**get_kernel_dict([f"--ext={EXTENSION}"]), "display_name": shown}
    write_whole(folder / "kernel.json", json.dumps(spec, indent=1))


def kernels_of_lab(environment: Mapping[str, str]) -> str:
    """A Jupyter data folder in which `python3`, the kernel that the notebooks name, is the course's.

    Raises LaunchError: it cannot be written.
    """
    from jupyter_client.connect import jupyter_runtime_dir

    # By environment, so that two checkouts do not share it; where the server writes as well.
    runtime = environment.get("JUPYTER_RUNTIME_DIR") or jupyter_runtime_dir()
    folder = Path(runtime, "dtlearn" + sys.prefix.replace("/", "-"))
    kernel = folder / "kernels" / "python3"
    try:
        kernel.mkdir(parents=True, exist_ok=True)
        write_kernel(kernel, "Python 3 (dtlearn)")
    except OSError as error:
        raise LaunchError(f"JupyterLab cannot be started: {error.filename}: {error.strerror}") from error
    return str(folder)
