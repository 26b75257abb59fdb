"""The launchers that `run_ranks` is compared with, each started from a process that has loaded all it needs.

They run in a process of their own, so that neither disturbs, or is helped by, what `run_ranks` keeps ready.
"""

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ...runtime.errors import DtlearnError
from ...runtime.machine.helper_process import HelperProcess
from ...runtime.machine.network import free_port
from ...runtime.machine.patience import Patience

SPAWN, NOTEBOOK = "torch.multiprocessing.spawn", "accelerate.notebook_launcher"
_SERVER = "dtlearn.bench.platform.other_launchers"
_PATIENCE = 300.0  # seconds for one launch


class Rivals:
    """The process that starts the other launchers. `close()` ends it and all that it started."""

    def __init__(self) -> None:
        # accelerate's own switch for CPU: without it a machine with a GPU would be measured on another backend.
        environment = {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
        self.process = HelperProcess(_SERVER, environment=environment, piped=True)
        try:
            self._hear()  # while it loads torch it would disturb whatever is measured
        except BaseException:
            self.close()
            raise

    def seconds(self, launcher: str, ranks: int) -> float:
        """Time of one launch on `ranks` ranks. Raises DtlearnError if it fails, or takes five minutes."""
        with contextlib.suppress(BrokenPipeError):
            self.process.send([launcher, ranks])
        return float(self._hear()["seconds"])

    def _hear(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] | None = self.process.receive(Patience(_PATIENCE, [self.process.pid]))
        except EOFError:
            raise DtlearnError((self.process.last_words() or ["it ended without a word"])[-1]) from None
        if answer is None:
            self._kill()
            raise DtlearnError(f"no result within {_PATIENCE:g} s")
        if "error" in answer:
            raise DtlearnError(answer["error"])
        return answer

    def _kill(self) -> None:
        # The workers of both launchers are in its session's one process group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._kill()
        self.process.close(5)


def main() -> None:
    """Say `{}` when all is loaded; then read launchers and numbers of ranks, and write the time of each launch."""
    import torch.distributed
    import torch.multiprocessing  # noqa: F401

    with contextlib.suppress(ImportError):  # then its launch says so
        import accelerate  # noqa: F401
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the launchers print is no answer
    print("{}", file=answers, flush=True)
    launchers = {SPAWN: launch_spawn, NOTEBOOK: launch_notebook}
    for line in sys.stdin:
        launcher, ranks = json.loads(line)
        with tempfile.TemporaryDirectory(prefix="dtlearn-bench-") as folder:
            try:
                begun = time.perf_counter()
                value = launchers[launcher](ranks, folder)
                answer: dict[str, float | str] = {"seconds": time.perf_counter() - begun}
                if value != ranks * (ranks + 1) / 2:
                    answer = {"error": f"the all-reduce gave {value}"}
            except Exception as error:
                last = (str(error).strip().splitlines() or [""])[-1]
                answer = {"error": f"{type(error).__name__}: {last}"}
        print(json.dumps(answer), file=answers, flush=True)


def launch_spawn(ranks: int, folder: str) -> float:
    """The all-reduce by `torch.multiprocessing.spawn`; returns rank 0's result."""
    import torch.multiprocessing as mp

    mp.spawn(spawn_worker, args=(ranks, folder), nprocs=ranks)
    return float(Path(folder, "result").read_text())


def spawn_worker(rank: int, world_size: int, folder: str) -> None:
    """One spawned rank: join the group through a file, as ranks of `run_ranks` do, and all-reduce."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder, "store")), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    _all_reduce(rank, folder)
    dist.destroy_process_group()


def launch_notebook(ranks: int, folder: str) -> float:
    """The all-reduce by `accelerate.notebook_launcher`; returns rank 0's result."""
    from accelerate import notebook_launcher

    port = str(free_port())  # its default port may be another program's
    notebook_launcher(notebook_worker, args=(folder,), num_processes=ranks, use_port=port)
    return float(Path(folder, "result").read_text())


def notebook_worker(folder: str) -> None:
    """One forked rank: accelerate makes the group from its environment variables."""
    import torch
    from accelerate import PartialState

    torch.set_num_threads(1)
    # Without cpu=True each rank takes itself for the only one: ACCELERATE_USE_CPU counts in Accelerator() only.
    state = PartialState(cpu=True)
    _all_reduce(state.process_index, folder)
    state.destroy_process_group()


def _all_reduce(rank: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor)
    if rank == 0:
        Path(folder, "result").write_text(str(tensor.item()))
