"""The head's hold on the store of a lab (see `rank/store.py`)."""

import contextlib
import signal
from pathlib import Path

from ...agent.client import get_agent
from ...agent.start import start_ranks
from ...device import Placement
from ...errors import LaunchError
from ...machine.patience import TO_BE_ENDED, TO_START


class LabStore:
    """A store process of this machine's agent, for one run. It listens at `address`, on the loopback."""

    def __init__(self, run_dir: Path) -> None:
        self.agent = get_agent()
        self.agent.hello()
        here = Placement("gloo", ("cpu",), "the store of a lab")
        self._collector = start_ranks(self.agent, "store", here, run_dir, TO_START)
        state = self._collector.ranks[0]
        self._collector.listen_for(TO_START, lambda: state.ready or state.failure)
        if state.ready is None:
            said = state.output.text().strip()[-1000:]
            self.close()
            raise LaunchError(f"the store in which the ranks of a lab find each other did not start: {said}")
        self.address = ("127.0.0.1", int(state.ready["port"]))

    def close(self) -> None:
        with contextlib.suppress(LaunchError):  # the agent is gone, and the store with it
            self.agent.signal([self._collector.ranks[0].pid], signal.SIGKILL, group=True)
        self._collector.wait_for_deaths(TO_BE_ENDED)
        self._collector.close()
