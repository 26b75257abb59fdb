"""Runs of HelloDeepSpeed beside its plain twin, kept with their date and versions: shown where DeepSpeed is missing.

.venv-libraries/bin/python -m dtlearn.libraries.hello_deepspeed.stored    # run all again and write the file
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dtlearn.runtime.run import run_ranks

from ..environment import versions
from .loop import TrainedBert, train_each
from .options import PRECISIONS, HelloOptions

FILE = Path(__file__).with_name("stored.json")
RANKS, TIMEOUT = 2, 1200.0
SHORT = HelloOptions(engine="plain", steps=20, batch_size=8, context_length=32, hidden_size=32)
STAGES = {
    "plain": SHORT,
    **{f"zero{stage}": replace(SHORT, engine="deepspeed", zero=stage) for stage in range(4)},
    **{f"zero{stage}_offload": replace(SHORT, engine="deepspeed", zero=stage, offload=True) for stage in (2, 3)},
}
RUNS: dict[str, HelloOptions] = {
    f"{name}_{precision}": replace(options, precision=precision)
    for precision in PRECISIONS
    for name, options in STAGES.items()
    if precision == "fp32" or not options.offload
}


@dataclass(frozen=True)
class StoredHello:
    """The stored runs.

    Attributes:
        date: when they were made, "2026-11-27".
        versions: of the packages, by name.
        runs: by the names of `RUNS`.
    """

    date: str
    versions: Mapping[str, str]
    runs: Mapping[str, TrainedBert]

    def from_the_twin(self, name: str, step: int) -> float:
        """How far a run's loss is from the plain run's of the same precision, after `step` updates.

        Raises:
            ValueError: there is no such run, or no such step.
        """
        if name not in self.runs:
            raise ValueError(f"no run is called {name!r}; there are {', '.join(self.runs)}")
        if step not in range(len(self.runs[name].losses)):
            raise ValueError(f"step must be 0 to {len(self.runs[name].losses) - 1}, got {step!r}")
        twin = self.runs[f"plain_{RUNS[name].precision}"]
        return abs(self.runs[name].losses[step] - twin.losses[step])


def load_stored_hello(file: Path = FILE) -> StoredHello:
    """Read the stored runs.

    Raises:
        ValueError: the file is missing or is none of ours.
    """
    try:
        data = json.loads(file.read_text("utf-8"))
        runs = {name: TrainedBert(**{**row, "losses": tuple(row["losses"])}) for name, row in data["runs"].items()}
        return StoredHello(data["date"], data["versions"], runs)
    except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        how = "`python -m dtlearn.libraries.hello_deepspeed.stored` in the libraries' environment makes them"
        raise ValueError(f"{file} holds no stored runs of HelloDeepSpeed: {how}") from error


def store(names: list[str], file: Path = FILE) -> None:
    """Run these on two ranks of this Python, and write the file with them alone.

    Raises:
        ValueError: a name that is none of `RUNS`, or DeepSpeed is not installed for this Python.
    """
    if unknown := [name for name in names if name not in RUNS]:
        raise ValueError(f"no run is called {', '.join(unknown)}; there are {', '.join(RUNS)}")
    options = [RUNS[name] for name in names]
    found = run_ranks(train_each, RANKS, options, device="cpu", timeout=TIMEOUT).values[0]
    data = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": versions("torch", "deepspeed"),
        "runs": {name: asdict(run) for name, run in zip(names, found, strict=True)},
    }
    file.write_text(json.dumps(data, separators=(",", ":")).replace('{"engine"', '\n{"engine"') + "\n", "utf-8")


if __name__ == "__main__":
    store(list(RUNS))
