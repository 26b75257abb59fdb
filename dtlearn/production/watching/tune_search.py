"""A search for the learning rate with Ray Tune, whose trainable is the course's training script.

A trial is one run of the script with one learning rate, in a process that Ray starts. Tune decides which trials run
next to each other, and, with a scheduler such as ASHA, which ones end early: this one runs all to the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dtlearn.train import Options, train

from .extras import load_extra

_ATTEMPTS = 3  # Ray gives its own processes 30 seconds to start, and no setting for it: few on a machine at work


@dataclass(frozen=True)
class SearchTrial:
    """What came of one learning rate.

    Attributes:
        lr: of the trial.
        accuracy: on the test samples, 0 to 1, of the last model.
        losses: mean loss of each update.
    """

    lr: float
    accuracy: float
    losses: tuple[float, ...]


def run_trial(config: dict[str, Any]) -> dict[str, Any]:
    """The trainable: one run of the training script. A plain function, which needs no Ray.

    Args:
        config: "lr", which Tune chooses, and the other options of the script.
    """
    result = train(Options(**config))
    return {"accuracy": result.accuracy, "losses": result.losses}


def search_learning_rate(
    rates: Sequence[float], folder: str | Path, *, options: Options | None = None, at_once: int = 1
) -> list[SearchTrial]:
    """Train once with each learning rate, under Ray Tune; the best one first.

    Args:
        rates: learning rates, each a trial.
        folder: in which Tune keeps what it knows of the trials.
        options: of the training script, all but `lr`; None: its defaults.
        at_once: trials at a time, each on one core.

    Raises:
        ExtraMissing: Ray is not installed.
        ValueError: no learning rate.
        RuntimeError: a trial failed; Tune has its traceback in `folder`.
        TimeoutError: Ray itself did not start.
    """
    if not rates:
        raise ValueError("there is nothing to search: give at least one learning rate")
    tune = load_extra("ray.tune")
    fixed = {name: value for name, value in asdict(options or Options()).items() if name != "lr"}
    for rate in rates:
        replace(Options(**fixed), lr=rate).check()

    def trainable(config: dict[str, Any]) -> None:  # in a process of a trial
        tune.report(run_trial(config))

    with _ray(at_once):
        tuner = tune.Tuner(
            trainable,
            param_space={**fixed, "lr": tune.grid_search(list(rates))},
            tune_config=tune.TuneConfig(metric="accuracy", mode="max", max_concurrent_trials=at_once),
            run_config=tune.RunConfig(storage_path=str(Path(folder).resolve()), name="learning_rate", verbose=0),
        )
        results = tuner.fit()
        if results.errors:
            raise RuntimeError(f"{len(results.errors)} of {len(rates)} trials failed: {results.errors[0]}")
        found = [
            SearchTrial(one.config["lr"], one.metrics["accuracy"], tuple(one.metrics["losses"])) for one in results
        ]
    return sorted(found, key=lambda trial: trial.accuracy, reverse=True)


@contextmanager
def _ray(num_cpus: int) -> Iterator[None]:
    """Run Ray on this machine alone, without its dashboard, and without reports to its makers."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = load_extra("ray")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init(num_cpus=num_cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
            break
        except Exception as error:
            ray.shutdown()
            if "timed out" not in str(error):
                raise
            if attempt == _ATTEMPTS:
                raise TimeoutError(
                    f"Ray's own processes did not start within its 30 s, in {attempt} attempts: this machine is busy. "
                    "Try again when it is not"
                ) from error
    try:
        yield
    finally:
        ray.shutdown()
