"""Is a person looking? Live front ends get widgets and measured times; headless runs the same text every time."""

import os

from ..runtime.words import format_seconds

_OFF = frozenset({"0", "false", "no", "off"})
# Set by pytest (so by nbval too) and by the usual CI services; they win over a front end that started the run.
_AUTOMATIC = ("PYTEST_VERSION", "PYTEST_CURRENT_TEST", "CI")
# Set for kernels by Jupyter Server (JupyterLab, Notebook), by VS Code, and by Colab.
_FRONT_ENDS = ("JPY_SESSION_NAME", "VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG", "COLAB_JUPYTER_IP")


def is_live() -> bool:
    """Whether a person looks at this kernel through a front end that can show widgets.

    `DTLEARN_HEADLESS` decides when it is set: 0 forces live, anything else forces headless. Otherwise a run under
    pytest (nbval) or CI is headless, and a kernel of JupyterLab, Notebook, VS Code or Colab is live. A kernel that
    nbclient or nbconvert started is headless, because none of those marks is there.
    """
    if forced := os.environ.get("DTLEARN_HEADLESS", "").strip().lower():
        return forced in _OFF
    if any(os.environ.get(name, "").lower() not in ("", *_OFF) for name in _AUTOMATIC):
        return False
    return any(os.environ.get(name) for name in _FRONT_ENDS)


def show_timing(label: str, seconds: float) -> None:
    """Print how long something took; a headless run prints a placeholder, so that outputs can be compared.

    Args:
        label: what was timed.
        seconds: how long it took.
    """
    print(f"{label}: {format_seconds(seconds) if is_live() else '(measured when you run this cell)'}")
