"""`dtlearn bench NAME`: measurements that a reader can repeat, each with its counterpart in one run."""

import argparse
import json
from pathlib import Path
from typing import Any

from ..bench.benches import BENCHES
from ..bench.status_line import status_line
from .arguments import add_example_parser, num_ranks, positive


def add_command(commands: Any) -> None:
    summary = "Measure. Each bench compares within one run, as figures of two runs cannot be compared."
    names = add_example_parser(commands, "bench", summary, "dtlearn bench launch").add_subparsers(
        dest="bench", metavar="NAME", required=True
    )
    for name, bench in BENCHES.items():
        parser = add_example_parser(names, name, bench.summary, bench.example, run)
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


def run(options: argparse.Namespace) -> int:
    """Run the bench that the options name and print what it measured."""
    bench = BENCHES[options.bench]
    with status_line(f"bench {options.bench}"):
        result = bench.measure(options.ranks, options.repetitions)
    if bench.plot is not None and options.plot is not None:
        from ..viz.picture import save_svg

        figure, words = bench.plot(result)
        save_svg(figure, options.plot, title=bench.summary, desc=words)
    values = {"bench": options.bench, **bench.values(result)}
    print(json.dumps(values, indent=2) if options.json else bench.table(result))
    return 0 if result.ok else 1
