"""`dtlearn bench NAME`: measurements that a reader can repeat, each with its counterpart in one run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arguments import add_example_parser, num_ranks, positive
from . import cells, collectives, data_parallel, launch, link, recorder
from .status_line import status_line


@dataclass(frozen=True)
class Bench:
    """One bench.

    Attributes:
        summary, example: for its help.
        option: name of the option that says how often, such as "rounds".
        default: its default.
        run: called with the number of ranks and of repetitions; returns a dataclass.
        table: that dataclass as text.
        values: that dataclass as plain values, for JSON.
        ranks: how many, unless told otherwise.
        plot: that dataclass as a figure and its description; None: there is no figure.
    """

    summary: str
    example: str
    option: str
    default: int
    run: Callable[[int, int], Any]
    table: Callable[[Any], str]
    values: Callable[[Any], dict[str, Any]]
    ranks: int = 4
    plot: Callable[[Any], tuple[Any, str]] | None = None


BENCHES = {
    "launch": Bench(
        "Time from call to result of an all-reduce: run_ranks, torch's spawn, accelerate's notebook_launcher.",
        "dtlearn bench launch --ranks 2 --rounds 3",
        "rounds",
        5,
        launch.measure,
        launch.table,
        launch.values,
    ),
    "cells": Bench(
        "Times of cells on persistent ranks: their start, an empty cell, a 1 MiB all-reduce; beside ipyparallel's.",
        "dtlearn bench cells --ranks 2",
        "cells",
        50,
        cells.measure,
        cells.table,
        cells.values,
    ),
    "link": Bench(
        "All-reduces on an emulated link, beside the formula of its model; and what overlaps with computation.",
        "dtlearn bench link --ranks 2",
        "times",
        10,
        link.measure,
        link.table,
        link.values,
    ),
    "collectives": Bench(
        "Collectives from send and receive beside gloo's own, on 2 ranks and on more, 1 KiB to 64 MiB.",
        "dtlearn bench collectives --plot collectives.svg",
        "rounds",
        7,
        collectives.measure,
        collectives.table,
        collectives.values,
        plot=collectives.plot,
    ),
    "data_parallel": Bench(
        "A training step averaged one by one, in buckets, and by torch's DDP; without and with an emulated link.",
        "dtlearn bench data_parallel --plot buckets.svg",
        "rounds",
        9,
        data_parallel.measure,
        data_parallel.table,
        data_parallel.values,
        ranks=2,
        plot=data_parallel.plot,
    ),
    "recorder": Bench(
        "What recording costs: microseconds of a call, and the share of a data-parallel training step.",
        "dtlearn bench recorder",
        "rounds",
        40,
        recorder.measure,
        recorder.table,
        recorder.values,
        ranks=2,
    ),
}


def add_command(commands: Any) -> None:
    """Add `bench` and all its benches to the command line."""
    summary = "Measure. Each bench compares within one run, as figures of two runs cannot be compared."
    names = add_example_parser(commands, "bench", summary, "dtlearn bench launch").add_subparsers(
        dest="bench", metavar="NAME", required=True
    )
    for name, bench in BENCHES.items():
        parser = add_example_parser(names, name, bench.summary, bench.example)
        words = f"2 to 64 (default: {bench.ranks})"
        parser.add_argument("--ranks", type=num_ranks, default=bench.ranks, help=words)
        parser.add_argument(
            f"--{bench.option}",
            dest="repetitions",
            metavar="N",
            type=positive,
            default=bench.default,
            help=f"measurements of each, after a first (default: {bench.default})",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
        if bench.plot is not None:
            parser.add_argument("--plot", metavar="FILE", type=Path, help="draw it too, as SVG")
        parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the bench that the options name and print what it measured."""
    bench = BENCHES[options.bench]
    with status_line(f"bench {options.bench}"):
        result = bench.run(options.ranks, options.repetitions)
    if bench.plot is not None and options.plot is not None:
        from ...viz.picture import save_svg

        figure, words = bench.plot(result)
        save_svg(figure, options.plot, title=bench.summary, desc=words)
    print(json.dumps(bench.values(result), indent=2) if options.json else bench.table(result))
    return 0 if result.ok else 1
