"""Kernels that tests start, on sockets in a folder in place of ports. `-p tests.kernel_sockets` has nbval start them.

Jupyter looks for five free ports, and its kernel takes them half a second later. Beside tests whose ranks connect all
the time, one kernel in 178 found one of them taken: then it does not start, or prints a traceback.
"""

import os
import shutil
import tempfile
import weakref
from typing import Any

from jupyter_client.manager import KernelManager


class SocketKernelManager(KernelManager):
    """A manager whose kernel listens in a folder of its own; nobody else may enter that."""

    def __init__(self, **options: Any) -> None:
        folder = tempfile.mkdtemp(prefix="dtlearn-")  # not a test's own: the path of a socket has at most 107 bytes
        super().__init__(transport="ipc", ip=f"{folder}/kernel", **options)
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def cleanup_connection_file(self) -> None:
        """The kernel has ended."""
        super().cleanup_connection_file()
        self._remove()


class BuildKernelManager(SocketKernelManager):
    """One whose kernel sees no GPU, as that of tools/build_notebooks.py: outputs are compared with what that stored."""

    def start_kernel(self, **options: Any) -> None:  # type: ignore[override]  # there it is made of another
        super().start_kernel(env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, **options)


def pytest_configure() -> None:
    import nbval.kernel

    nbval.kernel.KernelManager = BuildKernelManager
