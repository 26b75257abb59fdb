"""`%%ranks`, `%world` and `%%launch`."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from ..runtime.errors import DtlearnError, RankError, RanksDisagree, RanksTimeout
from ..runtime.link.link import Link
from ..runtime.machine.patience import HEADLESS_CELL
from ..runtime.watch.side_by_side import side_by_side
from ..runtime.words import incomplete, wrapped
from . import current_world
from .frontend import is_live
from .panel_sink import PanelSink
from .render import GroupedSink, OneRankSink, QuietSink, StreamSink

_VIEWS: dict[str, type[GroupedSink]] = {
    "stream": StreamSink,
    "grouped": GroupedSink,
    "panel": PanelSink,
    "rank0": OneRankSink,
    "quiet": QuietSink,
}


@magics_class
class RanksMagics(Magics):
    """The magics that `%load_ext dtlearn` adds to a notebook."""

    @magic_arguments()
    @argument("-r", "--ranks", help="run on these ranks only: 0,2-3")
    @argument("-t", "--time-limit", type=float, help="seconds; then the ranks are interrupted and the cell fails")
    @argument("-o", "--out", metavar="NAME", help="set NAME to the list of the last line's value on each rank")
    @argument("--show", choices=sorted(_VIEWS), help="how output is shown")
    @argument("--setup", action="store_true", help="run this cell again on a rank that had to be replaced")
    @argument("--record", metavar="NAME", help="set NAME to the record of the cell's communication")
    @argument("--explain", action="store_true", help="if it fails: show the last calls of all ranks side by side")
    @argument("--expect", choices=["error", "timeout", "deadlock"], help="the cell must fail so: show it and go on")
    @cell_magic
    def ranks(self, line: str, cell: str) -> None:
        """Run this cell on every rank of the world."""
        args = parse_line(self.ranks, line)
        for name in filter(None, (args.out, args.record)):
            if not name.isidentifier():
                raise UsageError(f"{name!r} is not a variable name")
        if args.time_limit is not None and not args.time_limit > 0:
            raise UsageError(f"-t takes a positive number of seconds; got {args.time_limit:g}")
        world = current_world.current_world()
        chosen = parse_ranks(args.ranks, world.size)
        view = args.show or ("stream" if is_live() else "grouped")
        sink = _VIEWS[view](chosen, hide_results=bool(args.out))
        asked = args.time_limit is not None or is_live()  # otherwise nobody is there to interrupt
        limit = args.time_limit if asked else HEADLESS_CELL
        assert self.shell is not None and self.shell.history_manager is not None
        # While a cell runs, `execution_count` is its number or the next one; that depends on IPython's version.
        number = len(self.shell.history_manager.input_hist_raw) - 1
        try:
            with _expecting(args.expect, sink, args.explain):
                # A comment stands for the line of %%ranks: line numbers in tracebacks are those of the notebook's cell.
                # (A cell magic of the rank's own, %%time say, has to come first.)
                code = cell if cell.startswith("%%") else "# %%ranks\n" + cell
                world.execute(code, chosen, timeout=limit, patient=not asked, number=number, sink=sink)
                if args.setup and cell not in world.setup_cells:
                    world.setup_cells.append(cell)
        finally:
            if world.running and (missing := incomplete(world.log_faults())):
                print(missing)
            if args.record and world.running:
                # A rank that did not run this cell still has the record of an earlier one.
                self.shell.user_ns[args.record] = world.record(chosen)
        if args.out and not args.expect:
            self.shell.user_ns[args.out] = world.last(chosen)

    @line_magic
    def world(self, line: str) -> None:
        """`%world status`, `diagnose`, `restart`, `stop`; `%world link 1 Gb/s`, `%world link none`."""
        world = current_world.last_world()
        command, _, name = (line.strip() or "status").partition(" ")
        known = command in ("status", "diagnose", "restart", "stop", "link")
        if not known or bool(name) != (command == "link"):
            raise UsageError(f"%world knows status, diagnose, restart, stop and link NAME; got {line.strip()!r}")
        if world is None:
            print("no ranks yet: start them with dtlearn.world(n)")
        elif command == "restart":
            world.restart()
            print(f"{world}; all variables are new")
        elif command == "link":
            try:
                world.link = None if name == "none" else Link.named(name.strip("'\""))
            except ValueError as error:
                raise UsageError(str(error)) from None
            print(world)
        elif command == "stop":
            world.stop()
            print(world)
        elif command == "diagnose":
            print(world.diagnose())
        else:
            print(world)
            for row in world.status():
                host = f"  {row['host']}" if "host" in row else ""
                print(f"  rank {row['rank']}{host}  pid {row['pid']}  {row['device']}  {row['state']}")

    @magic_arguments()
    @argument("-n", "--ranks", type=int, default=2, help="number of processes to start (on each node)")
    @argument(
        "--nodes",
        default="1",
        metavar="K|all",
        help="play K machines, all on this one, with a torchrun for each; all: the nodes of the notebook's lab",
    )
    @argument("-t", "--time-limit", type=float, default=300.0, help="seconds; then everything is ended")
    @argument("--with", dest="launcher", choices=["torchrun", "accelerate", "python"], default="torchrun")
    @argument("--expect", choices=["error", "timeout"], help="the script must fail so: show it and go on")
    @argument("--file", help="keep the script under this name (otherwise it is temporary)")
    @argument("--show", choices=sorted(_VIEWS), help="how output is shown")
    @argument("args", nargs="*", help="arguments of the script, after --")
    @cell_magic
    def launch(self, line: str, cell: str) -> None:
        """Run this cell as a script of its own, once, in new processes started by torchrun."""
        from ..runtime.lab.head.agent import LabAgent
        from ..runtime.lab.head.launch import launch_on_lab
        from ..runtime.launch import launch_script

        args = parse_line(self.launch, line)
        if args.nodes != "all" and not args.nodes.isdecimal():
            raise UsageError(f"--nodes takes a whole number, or all; got {args.nodes!r}")
        world = current_world.last_world()
        if world is not None and world.running and any(d != "cpu" for d in world.placement.devices):
            raise DtlearnError("the notebook's ranks hold the GPUs: stop them first with `%world stop`")
        view = args.show or ("stream" if is_live() else "grouped")
        lab = world.agent if world is not None and args.nodes == "all" else None
        lab = lab if isinstance(lab, LabAgent) else None
        if args.nodes == "all" and lab is None:
            raise UsageError("--nodes all needs ranks on a lab: start them with dtlearn.world('lab.toml')")
        if lab is not None and (args.launcher != "torchrun" or args.file):
            raise UsageError("--nodes all goes with torchrun, and keeps no --file")
        nodes = len(lab.lab.nodes) if lab is not None else int(args.nodes)
        sink = _VIEWS[view](list(range(args.ranks * nodes)))
        try:
            with _expecting(args.expect, sink):
                if lab is not None:
                    launch_on_lab(lab, cell, args.ranks, args=args.args, timeout=args.time_limit, sink=sink)
                    return
                launch_script(
                    cell,
                    args.ranks,
                    nodes=nodes,
                    launcher=args.launcher,
                    path=Path(args.file) if args.file else None,
                    args=args.args,
                    timeout=args.time_limit,
                    sink=sink,
                )
        except ValueError as error:
            raise UsageError(str(error)) from None


def parse_line(magic: Any, line: str) -> Any:
    """The options of a magic's line, as a shell would read it: IPython itself leaves the quotes in."""
    try:
        return magic.parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"{line!r}: {error}") from None


@contextlib.contextmanager
def _expecting(failure: str | None, sink: GroupedSink, explain: bool = False) -> Iterator[None]:
    """Show the output at the end, whatever happens; show an expected failure as text and go on."""
    try:
        yield
    except (RankError, RanksTimeout) as error:
        sink.close()
        if explain and (table := side_by_side(error.last_calls)):
            print("The last calls of the ranks, side by side:", *table, sep="\n")
        kinds = {RanksTimeout: "timeout", RanksDisagree: "deadlock"}
        if failure != kinds.get(type(error), "error"):
            raise
        if failure == "deadlock" and error.lost:  # the cells below need what the ranks held
            raise
        print("As expected, this cell failed:", *wrapped(str(error)), sep="\n")
    except BaseException:
        sink.close()
        raise
    else:
        sink.close()
        if failure:
            raise DtlearnError(f"this cell was expected to end with {failure}, but it succeeded")


def parse_ranks(text: str | None, size: int) -> list[int]:
    """ "0,2-3" -> [0, 2, 3]; None -> all. Raises UsageError for ranks that the world does not have."""
    if text is None:
        return list(range(size))
    chosen: set[int] = set()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            some = range(int(first), int(last if dash else first) + 1)
            if not some:
                raise ValueError
            chosen.update(some)
    except ValueError:
        raise UsageError(f"-r takes ranks such as 0,2-3; got {text!r}") from None
    if max(chosen) >= size:
        raise UsageError(f"-r {text}: this world has the ranks 0 to {size - 1}")
    return sorted(chosen)
