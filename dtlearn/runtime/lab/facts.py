"""What a machine says of itself to whoever examines a lab: memory, names, GPUs. Plain values, which travel as JSON."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from typing import Any

from ...version import VERSION
from ..machine.memory import memory
from ..machine.patience import TO_LIST_GPUS, TO_LOOK_UP_A_NAME
from ..machine.processes import communicate

_QUERY = "index,name,memory.total,memory.used,driver_version"


def software() -> dict[str, str]:
    """The versions that must be the same on all hosts. torch's build (CPU, CUDA) may differ."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {"dtlearn": VERSION, "python": python, "torch": version("torch").partition("+")[0]}


def node_facts() -> dict[str, Any]:
    """The facts; it takes `TO_LOOK_UP_A_NAME` seconds at the most, plus the driver's own.

    Returns:
        name, addresses, seconds: this machine's name, the addresses that it stands for here, and what looking it up
            took (None: longer than `patience`, in seconds).
        memory: bytes, (all, free); None if not known.
        shared_memory: bytes of /dev/shm; None if there is none.
        gpus: see `query_gpus`.
        visible: CUDA_VISIBLE_DEVICES, None if it is not set.
        time_ns: the wall clock, at the end.
    """
    look_up = HostNameLookUp()
    gpus = query_gpus()
    seconds = look_up.seconds(TO_LOOK_UP_A_NAME)
    return {
        "name": look_up.name,
        "addresses": look_up.addresses,
        "seconds": seconds,
        "patience": TO_LOOK_UP_A_NAME,
        "memory": memory(),
        "shared_memory": shared_memory_size(),
        "gpus": gpus,
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "time_ns": time.time_ns(),
    }


class HostNameLookUp:
    """Looks up this machine's own name in the background: where no name server answers, it takes many seconds."""

    def __init__(self) -> None:
        self.name = socket.gethostname()
        self.addresses: list[str] = []  # what it stands for; [] if it was not found, or not yet
        self._begun = time.monotonic()
        self._seconds: float | None = None
        self._thread = threading.Thread(target=self._look_up, daemon=True)
        self._thread.start()

    def seconds(self, most: float) -> float | None:
        """How long it took, found or not; None if it still goes on `most` seconds after it began."""
        self._thread.join(max(0.0, most - (time.monotonic() - self._begun)))
        return self._seconds

    def _look_up(self) -> None:
        with contextlib.suppress(OSError):  # "not found", said at once, stalls nothing
            entries = socket.getaddrinfo(self.name, None) or []
            self.addresses = sorted({str(address[0]) for *_, address in entries})
        self._seconds = time.monotonic() - self._begun


def shared_memory_size() -> int | None:
    """Bytes of /dev/shm; None if there is none."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage("/dev/shm").total
    return None


def query_gpus() -> list[str] | None:
    """A line per GPU from the driver's own tool; None where there is no driver. CUDA is not touched.

    Returns:
        Lines such as "0, NVIDIA H200, 143771, 512, 570.1": number, name, MiB, MiB in use, driver.
    """
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said, _ = communicate(process, TO_LIST_GPUS)
        return [line.strip() for line in said.splitlines() if line.strip()] if process.returncode == 0 else None
    return None
