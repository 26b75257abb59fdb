"""A notebook without a browser: a real kernel that runs one cell after another."""

import contextlib
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.kernel_sockets import SocketKernelManager

_ANSI = re.compile(r"\x1b\[[\d;]*m")


@dataclass
class Cell:
    """What a cell showed, in the order of the notebook.

    Attributes:
        number: the notebook's number of the cell.
        ok: whether it ended well.
        outputs: ("stdout" or "stderr", text), ("error", its text without colours) or ("display", {type: data});
            neighbouring texts of one stream are one; a display that was updated stands in its last state.
        error: name of the error's class, "" if none was shown.
    """

    number: int = 0
    ok: bool = False
    outputs: list[tuple[str, str | dict[str, str]]] = field(default_factory=list)
    error: str = ""

    def text(self, kind: str) -> str:
        """All that was shown on "stdout", on "stderr" or as "error", without colours."""
        return _ANSI.sub("", "".join(text for name, text in self.outputs if name == kind))

    @property
    def displays(self) -> list[dict[str, str]]:
        return [data for name, data in self.outputs if name == "display"]


class Notebook:
    """A kernel as nbclient or nbval would start it.

    Args:
        folder: where it runs; its IPython profile, which is nobody's own, and its temporary files are there too.
        runs_in: the folder of its cells, if it is another one.
        kernel: of the manager, if it is not to be the usual Python: its name, and where that is known.
    """

    def __init__(self, folder: Path, runs_in: Path | None = None, **kernel: Any) -> None:
        self._manager = SocketKernelManager(**{"kernel_name": "python3", **kernel})
        self.folder, self.temporary = folder, folder / "tmp"
        self.temporary.mkdir()
        own = {"IPYTHONDIR": str(folder / "ipython"), "TMPDIR": str(self.temporary)}
        self._manager.start_kernel(cwd=str(runs_in or folder), env={**os.environ, **own})
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)
        self.pid = self._manager.provisioner.pid

    def run(
        self, source: str, when_it_says: dict[str, Callable[[], object]] | None = None, timeout: float = 60
    ) -> Cell:
        """Run a cell to its end. `{"here": do}`: call `do` as soon as it prints "here"."""
        cell, places = Cell(), {}
        reactions = dict(when_it_says or {})

        def show(message):
            kind, content = message["msg_type"], SimpleNamespace(**message["content"])
            if kind == "stream":
                if cell.outputs and cell.outputs[-1][0] == content.name:
                    content.text = cell.outputs.pop()[1] + content.text
                cell.outputs.append((content.name, content.text))
                for word in [word for word in reactions if word in content.text]:
                    reactions.pop(word)()
            elif kind == "error":
                cell.error = content.ename
                cell.outputs.append(("error", _ANSI.sub("", "\n".join(content.traceback))))
            elif kind in ("display_data", "execute_result", "update_display_data"):
                name = getattr(content, "transient", {}).get("display_id")
                place = places.get(name, len(cell.outputs)) if kind == "update_display_data" else len(cell.outputs)
                cell.outputs[place : place + 1] = [("display", content.data)]
                places[name] = place

        reply = self._client.execute_interactive(source, output_hook=show, timeout=timeout, allow_stdin=False)
        cell.number, cell.ok = reply["content"]["execution_count"], reply["content"]["status"] == "ok"
        assert not reactions, f"never said: {list(reactions)}; shown was: {cell.outputs}"
        return cell

    def value(self, expression: str) -> object:
        """The value of an expression in the notebook; a plain one, such as a list of numbers."""
        cell = self.run(f"print(repr({expression}))")
        assert cell.ok, cell.outputs
        return eval(cell.text("stdout"), {"__builtins__": {}})

    def complete(self, code: str) -> list[str]:
        """What the Tab key offers behind that text."""
        message = self._client.complete(code, len(code), reply=True, timeout=60)
        return message["content"]["matches"]

    def inspect(self, code: str) -> str:
        """What Shift-Tab shows of the name at its end; "" if it knows nothing."""
        message = self._client.inspect(code, len(code), reply=True, timeout=60)
        return _ANSI.sub("", message["content"]["data"].get("text/plain", ""))

    def interrupt(self) -> None:
        """The stop button."""
        self._manager.interrupt_kernel()

    def run_and_kill(self, source: str, word: str) -> None:
        """Run a cell; when it prints that word, kill the kernel as if the machine ran out of memory."""
        self.start(source, word)
        os.kill(self.pid, signal.SIGKILL)

    def start(self, source: str, word: str) -> None:
        """Run a cell, and leave it when it prints that word."""
        self._client.execute(source, allow_stdin=False)
        while word not in (message := self._client.get_iopub_msg(timeout=60))["content"].get("text", ""):
            assert message["content"].get("execution_state") != "idle", f"the cell ended and never said {word!r}"

    def restart(self) -> None:
        """The button "Restart the kernel"."""
        self._manager.restart_kernel()
        self._client.wait_for_ready(timeout=60)
        self.pid = self._manager.provisioner.pid

    def shut_down(self) -> None:
        """What closing the notebook for good does."""
        self._manager.shutdown_kernel()

    def close(self) -> None:
        self._client.stop_channels()
        with contextlib.suppress(ProcessLookupError):  # a test has killed it
            self._manager.shutdown_kernel(now=not self._manager.is_alive())
        self._manager.cleanup_resources()
