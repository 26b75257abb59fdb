"""A script that a node runs under torchrun for the head, as its part of a launch over all nodes."""

import os
import subprocess
import threading
from typing import Any

from ...launch import SCRIPT_VARIABLES, launch_command, start_guarded
from ...machine.network import interface_variables
from ...machine.run_folder import delete_folder, new_run_directory
from ..streams import Stream, Streams


class NodeLaunches:
    """The scripts that run on this node."""

    def __init__(self, streams: Streams, interface: str) -> None:
        self._streams, self._interface = streams, interface
        self._running: dict[subprocess.Popen[bytes], threading.Thread] = {}

    def start(self, request: dict[str, Any]) -> None:
        """Run the script; its streams are the request's: lifeline, stdout, stderr, and one whose end has the code."""
        folder = new_run_directory()
        script = folder / "script.py"
        script.write_text(request["source"], encoding="utf-8")
        command = launch_command(
            script, request["size"], "torchrun", folder / "logs", request["nodes"], request["node"], request["meet_at"]
        )
        interfaces = interface_variables(self._interface, os.environ)
        env = {**os.environ, **interfaces, **SCRIPT_VARIABLES, **request["env"]}
        process = start_guarded([*command, *request["args"]], env)
        lifeline, *outputs, code = request["streams"]
        Stream(self._streams, lifeline, _own(process.stdin), reads=False)
        for number, pipe in zip(outputs, (process.stdout, process.stderr), strict=True):
            Stream(self._streams, number, _own(pipe), writes=False)
        ended = Stream(self._streams, code, None)

        def wait() -> None:
            status = process.wait()
            delete_folder(folder)
            self._running.pop(process, None)
            self._streams.loop.call_soon_threadsafe(ended.finish, {"code": status})

        self._running[process] = threading.Thread(target=wait)
        self._running[process].start()

    def close(self) -> None:
        """The head is gone: the lifelines are closed, which ends the scripts. Wait for that."""
        self._streams.end_all({})
        for thread in list(self._running.values()):
            thread.join()


def _own(pipe: Any) -> int:
    """A pipe's descriptor, which the stream then closes."""
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor
