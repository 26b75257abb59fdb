"""The `dtlearn` command: open the course, do its exercises, check this machine, measure.

Exit codes: 0 all well; 1 something is wrong; 2 wrong usage; 3 the grader failed; 130 interrupted.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..runtime.errors import DtlearnError
from ..runtime.machine.processes import take_interrupts
from .arguments import Parser
from .bench import add_command as add_bench
from .completion import add_command as add_completion
from .doctor.report import add_command as add_doctor
from .exercises.grade import add_command as add_grade
from .exercises.grade_class import add_command as add_grade_class
from .exercises.one_exercise import add_commands as add_one_exercise
from .exercises.progress import add_command as add_progress
from .exercises.watch import add_command as add_watch
from .jupyterlab import add_command as add_lab
from .kernel import add_command as add_kernel
from .node import add_commands as add_node
from .plan import add_command as add_plan

WRONG, USAGE, INTERRUPTED = 1, 2, 130

_EPILOG = """\
example:
  dtlearn doctor        what works on this machine, and what to fix

Every command has its own --help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (None: that of this process). Returns the exit code.

    A user's mistake is told in one message, without a traceback.
    """
    if argv is None:  # this process is ours
        take_interrupts()
    try:
        options = build_parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed the help, the version or what is wrong
        return end.code if isinstance(end.code, int) else USAGE
    try:
        code: int = options.run(options)
        sys.stdout.flush()  # here, where a closed pipe is caught
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader left, as in `dtlearn doctor | head`
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return WRONG
    except (DtlearnError, ValueError) as error:
        print(f"dtlearn {options.command}: {error}", file=sys.stderr)
        # A DtlearnError that is not also a ValueError says that something failed, not that it was asked for wrongly.
        return USAGE if isinstance(error, ValueError) else WRONG


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line. What it returns has `run`, a function of the options."""
    parser = Parser(
        prog="dtlearn",
        description="A course on distributed training: every strategy as readable code that runs on real ranks.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dtlearn {__version__}")
    parser.set_defaults(build_parser=build_parser)  # for the command that describes all of them
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    exercises = (add_one_exercise, add_progress, add_grade, add_watch, add_grade_class)
    for add_command in (add_lab, *exercises, add_doctor, add_bench, add_plan, add_node, add_kernel, add_completion):
        add_command(commands)
    return parser
