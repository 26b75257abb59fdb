"""Opens a notebook in JupyterLab with a real browser, as a learner does: run cells, move widgets, look, interrupt.

Everything happens in a temporary folder: the settings of JupyterLab and of the browser, and a copy of the notebooks.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dtlearn.cli.jupyterlab import server_command, server_environment

MARKER = "DTLEARN_BROWSER_TEST"
SERVER_PATIENCE = 60.0  # seconds until the server answers
PAGE_PATIENCE = 60.0  # seconds until a notebook is open and its kernel is idle
WINDOW = {"width": 1280, "height": 900}
BROWSER_FLAGS = [
    "--no-sandbox",  # Chromium refuses to run as root with it, and containers often are root
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm of a container may be too small for it
    # What a browser fetches for itself is no request of the notebook's.
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# The notebook's model, read through JupyterLab's own objects: the page holds only the cells near the window.
_NOTEBOOK = "const notebook = window.jupyterapp.shell.currentWidget.content;"
# Before the file is loaded there is one empty cell, and what is run before the kernel answers is lost.
_JS_READY = """() => {
    const context = window.jupyterapp?.shell.currentWidget?.context;
    const session = context?.sessionContext;
    return Boolean(context?.isReady && session.isReady && session.session?.kernel?.status === "idle");
}"""
_JS_SAVED = "() => !window.jupyterapp.shell.currentWidget.context.model.dirty"
_JS_CELLS = f"""() => {{ {_NOTEBOOK}
    const plain = text => Array.isArray(text) ? text.join("") : text || "";
    return notebook.widgets.map((widget, number) => ({{widget, number}}))
        .filter(({{widget}}) => widget.model.type === "code")
        .map(({{widget, number}}) => {{
            const outputs = widget.model.outputs.toJSON();
            const failed = outputs.find(o => o.output_type === "error");
            return {{
                number: number,
                source: widget.model.sharedModel.getSource(),
                count: widget.model.executionCount,
                outputs: outputs.map(o => plain(o.text) || plain((o.data || {{}})["text/plain"])),
                error: failed ? `${{failed.ename}}: ${{failed.evalue}}\\n${{failed.traceback.join("\\n")}}` : "",
            }};
        }});
}}"""
_JS_SCROLL = f"async number => {{ {_NOTEBOOK} await notebook.scrollToItem(number, 'start'); }}"
_JS_SELECT = f"""number => {{ {_NOTEBOOK}
    notebook.activeCellIndex = number;
    notebook.mode = "command";
    notebook.node.focus();
}}"""
_JS_SCROLL_TO = f"""position => {{ {_NOTEBOOK}
    notebook.outerNode.scrollTop = position;
    return notebook.outerNode.scrollHeight;
}}"""


class Lab:
    """A running JupyterLab.

    Attributes:
        url: its address, such as http://127.0.0.1:41234/.
        token: what a browser has to show to be let in.
    """

    def __init__(self, root: Path, scratch: Path) -> None:
        self._mark = uuid.uuid4().hex
        self._log = scratch / "jupyterlab.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        environment = self._environment(scratch)
        self.token = environment["JUPYTER_TOKEN"]
        # The flags and the environment that `dtlearn lab` gives it, so that what is tested is what a learner gets.
        command = server_command(root, Path("."), True, port, "127.0.0.1", os.geteuid() == 0)
        command += ["--ServerApp.port_retries=0", "--LabApp.expose_app_in_browser=True"]
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(
                command,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _environment(self, scratch: Path) -> dict[str, str]:
        # Kernels must take this for a person's session: see dtlearn.notebook.frontend.
        automatic = ("PYTEST_", "JUPYTER", "IPYTHON", "DTLEARN_HEADLESS")
        own = {k: v for k, v in os.environ.items() if not k.startswith(automatic) and k != "CI"}
        folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        for name in folders:
            (scratch / name.lower()).mkdir(exist_ok=True)  # a second day finds the settings of the first
            own[name] = str(scratch / name.lower())
        return {**server_environment(own), MARKER: self._mark}

    def _wait(self) -> None:
        deadline = time.monotonic() + SERVER_PATIENCE
        while time.monotonic() < deadline and self._server.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}api", timeout=5):
                return
            time.sleep(0.1)
        raise AssertionError(f"JupyterLab did not start:\n{self.log()}")

    def log(self) -> str:
        """The end of what the server said."""
        return self._log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """End the server as Ctrl-C in `dtlearn lab` does."""
        if self._server.poll() is None:
            self._server.terminate()
            try:
                self._server.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self._server.pid, signal.SIGKILL)
                self._server.wait()

    def processes(self) -> dict[int, str]:
        """Living processes that this server started, however indirectly: {pid: command line}. Linux only."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended, or it is another user's
                if f"{MARKER}={self._mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if command.strip():  # a zombie has none
                        found[int(folder.name)] = command[:200]
        return found


class NotebookPage:
    """One notebook in one browser page.

    Attributes:
        page: playwright's page.
        trouble: console errors and uncaught exceptions, as text.
        foreign: addresses outside the server that the page asked for.
    """

    def __init__(self, page: Any, lab: Lab) -> None:
        self.page = page
        self.trouble: list[str] = []
        self.foreign: list[str] = []
        self._lab = lab
        page.on("console", lambda m: self.trouble.append(f"{m.text} ({m.location})") if m.type == "error" else None)
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self._note(request.url))
        page.on("websocket", lambda socket: self._note(socket.url))

    def _note(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(self._lab.url).netloc:
            self.foreign.append(url)

    def open(self, name: str) -> None:
        """Open a notebook of the server's folder and wait for its kernel."""
        self.page.goto(f"{self._lab.url}lab/tree/{name}?reset&token={self._lab.token}", timeout=1000 * PAGE_PATIENCE)
        self.page.wait_for_function(_JS_READY, timeout=1000 * PAGE_PATIENCE)

    def menu(self, menu: str, item: str) -> None:
        """Choose an item of the main menu."""
        self.page.locator(".lm-MenuBar-item", has_text=menu).first.click()
        self.page.locator(f".lm-Menu-item:has(.lm-Menu-itemLabel:text-is('{item}'))").click()

    def save(self) -> None:
        """Save the notebook, and wait until it is written."""
        self.menu("File", "Save Notebook")
        self.page.wait_for_function(_JS_SAVED, timeout=1000 * PAGE_PATIENCE)

    def restart(self) -> None:
        """Restart the kernel, as the menu does, and wait until it is idle."""
        self.menu("Kernel", "Restart Kernel…")
        self.page.locator(".jp-Dialog .jp-mod-warn").click()
        self.page.wait_for_timeout(1000)  # until the old kernel is not idle any more
        self.page.wait_for_function(_JS_READY, timeout=1000 * PAGE_PATIENCE)

    def clear_outputs(self) -> None:
        """Forget all outputs and execution counts, as the menu does."""
        self.menu("Edit", "Clear Outputs of All Cells")
        left = [c for c in self.code_cells() if c["outputs"] or c["count"] is not None]
        assert not left, left

    def run_all(self, seconds: float) -> None:
        """Run all cells and wait for the last one. Fails at the first error, with its text, and when no cell has ended
        for so many seconds: a busy machine takes long for all of them, and goes on all the same."""
        self.menu("Run", "Run All Cells")
        self.wait(self._all_done, seconds, "no further cell has ended", self._num_done, every=0.5)

    def _all_done(self) -> bool:
        cells = self.code_cells()
        for cell in cells:
            assert not cell["error"], f"{cell['source']}\n{cell['error']}"
        return all(cell["count"] is not None for cell in cells)

    def _num_done(self) -> int:
        return sum(cell["count"] is not None for cell in self.code_cells())

    def code_cells(self) -> list[dict[str, Any]]:
        """Each code cell's number among all, source, execution count (None: not run, or running), outputs, error."""
        return self.page.evaluate(_JS_CELLS)

    def find(self, text: str) -> dict[str, Any]:
        """The first code cell whose source holds this text."""
        return next(cell for cell in self.code_cells() if text in cell["source"])

    def cell(self, number: int) -> Any:
        """Playwright's locator of a cell, scrolled into view."""
        self.page.evaluate(_JS_SCROLL, number)
        cell = self.page.locator(f".jp-Cell[data-windowed-list-index='{number}']")
        cell.scroll_into_view_if_needed()
        return cell

    def start_cell(self, text: str) -> None:
        """Run the first code cell whose source holds this text; returns while it runs."""
        self._press_run(text)
        self.wait(lambda: self.find(text)["count"] is None, 10, "the cell did not start")

    def run_cell(self, text: str, seconds: float = 60.0) -> dict[str, Any]:
        """Run the first code cell whose source holds this text. Returns it as it is after its end."""
        before = self.find(text)["count"]
        self._press_run(text)
        self.wait(lambda: self.find(text)["count"] not in (None, before), seconds, "the cell did not end")
        return self.find(text)

    def _press_run(self, text: str) -> None:
        number = self.find(text)["number"]
        self.cell(number)
        self.page.evaluate(_JS_SELECT, number)  # a click on a folded cell would unfold it
        self.page.keyboard.press("Control+Enter")

    def pop_ups(self) -> list[str]:
        """Texts of the dialogs and notifications that cover the page."""
        self.page.wait_for_timeout(500)  # they come after the notebook
        return self.page.locator(".jp-Dialog, .Toastify__toast").all_inner_texts()

    def wait(
        self,
        condition: Callable[[], Any],
        seconds: float,
        message: str,
        progress: Callable[[], Any] = lambda: None,
        every: float = 0.1,
    ) -> float:
        """Wait until a condition holds; returns the seconds that it took.

        `seconds`: how long that may take, or, where there is a `progress`, how long that may stay the same.
        `every`: seconds from one look to the next; a look at all cells is work for the browser.
        """
        begun = moved = time.monotonic()
        state = progress()
        while not condition():
            if (latest := progress()) != state:
                state, moved = latest, time.monotonic()
            assert time.monotonic() < moved + seconds, f"{message} within {seconds:g} s\n{self._lab.log()}"
            self.page.wait_for_timeout(1000 * every)  # playwright handles the page's events in here
        return time.monotonic() - begun

    def screenshots(self, folder: Path, name: str, step: int = 700) -> list[Path]:
        """Pictures of the whole notebook, one window after the other."""
        folder.mkdir(parents=True, exist_ok=True)
        files: list[Path] = []
        position, height = 0, 1
        while position < height:
            height = self.page.evaluate(_JS_SCROLL_TO, position)
            self.page.wait_for_timeout(150)
            files.append(folder / f"{name}-{len(files):02d}.png")
            self.page.screenshot(path=files[-1])
            position += step
        return files


@contextlib.contextmanager
def opened(lab: Lab, chromium: str, scratch: Path) -> Iterator[NotebookPage]:
    """A fresh browser with one page, for one server."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            scratch / "browser", executable_path=chromium, headless=True, args=BROWSER_FLAGS, viewport=WINDOW
        )
        try:
            yield NotebookPage(context.pages[0], lab)
        except BaseException:
            context.pages[0].screenshot(path=scratch / "failed.png")
            raise
        finally:
            context.close()
