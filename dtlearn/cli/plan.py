"""`dtlearn plan MODEL CLUSTER BATCH`: layouts for a cluster that is not here; `--score FILE`: how right that is."""

import argparse
import json
from pathlib import Path
from typing import Any

from .arguments import add_example_parser, positive

_AXES = ("tp", "pp", "dp", "cp", "microbatch")


def add_command(commands: Any) -> None:
    summary = "Plan a training run: the best layouts of a model on a cluster, and why the others lose."
    parser = add_example_parser(commands, "plan", summary, "dtlearn plan bloom 384xA100-80GB 2048 --network 12.5", run)
    parser.add_argument("model", nargs="?", help="a name, such as bloom or llama-3-70b, or parameters, such as 20B")
    parser.add_argument("cluster", nargs="?", help="NUMBERxGPU, such as 384xA100-80GB; 64xH100/4: nodes of 4")
    parser.add_argument("batch", nargs="?", type=positive, help="sequences of a step, on all GPUs")
    parser.add_argument("--length", type=positive, default=0, help="tokens of a sequence (default: the model's)")
    for axis in _AXES:
        parser.add_argument(f"--{axis}", type=positive, default=0, metavar="N", help="keep this number")
    parser.add_argument("--recompute", choices=("none", "selective", "full"), default="", help="keep this way")
    parser.add_argument("--zero", type=int, choices=range(4), help="keep this ZeRO stage")
    parser.add_argument("--network", type=float, metavar="GB/S", help="of each GPU to other nodes, in one direction")
    parser.add_argument("--tokens", type=float, help="of the whole run, for its days")
    parser.add_argument("--top", type=positive, default=5, metavar="N", help="layouts to print (default: 5)")
    parser.add_argument("--score", type=Path, metavar="FILE", help="predict the published numbers in a JSON file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(options: argparse.Namespace) -> int:
    """Print the plan, or the score. Raises ValueError for what does not divide, does not fit or is not known."""
    from .. import planner

    if options.score is not None:
        judged = planner.score(planner.read_entries(options.score))
        print(json.dumps(planner.score_values(judged), indent=2) if options.json else planner.score_table(judged))
        return 0
    if options.batch is None:
        raise ValueError("expected MODEL CLUSTER BATCH, such as bloom 384xA100-80GB 2048, or --score FILE")
    tokens = 0.0 if options.tokens is None else options.tokens
    planner.check_report(options.top, tokens)
    network = options.network * 1e9 if options.network is not None else None
    kept = {axis: getattr(options, axis) for axis in _AXES}
    constraints = planner.Constraints(**kept, zero_stage=options.zero, recompute=options.recompute)
    model, cluster = planner.find_model(options.model), planner.parse_cluster(options.cluster, network)
    plans = planner.search_layouts(model, cluster, options.batch, options.length, constraints)
    if options.json:
        print(json.dumps(planner.plan_values(plans, options.top, tokens), indent=2))
    else:
        print(planner.plan_table(plans, options.top, tokens))
    return 0
