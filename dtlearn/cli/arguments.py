"""Types of command-line arguments. A wrong value ends in a usage message that says what is allowed."""

import argparse
import difflib
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ..runtime.device import check_world_size


class Parser(argparse.ArgumentParser):
    """Says what a wrong command is like. Its subcommands are parsed by such parsers too."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        choices = re.findall(r"[\w-]+", wrong[2]) if wrong else []
        close = difflib.get_close_matches(wrong[1], choices, n=2) if wrong else []
        super().error(f"{message}; did you mean {' or '.join(close)}?" if close else message)


def add_example_parser(
    commands: Any, name: str, summary: str, example: str, run: Callable[[argparse.Namespace], int] | None = None
) -> argparse.ArgumentParser:
    """A subcommand that calls `run`. Its help starts with `summary` and ends with `example`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary[0].lower() + re.split(r"\.(?:\s|$)", summary[1:], maxsplit=1)[0],
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def num_ranks(text: str) -> int:
    """A number of ranks that can talk to each other: 2 to 64."""
    try:
        size = check_world_size(_whole(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size < 2:
        raise argparse.ArgumentTypeError("an all-reduce needs 2 ranks or more; got 1")
    return size


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    number = _whole(text)
    if not isinstance(number, int) or number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more; got {text!r}")
    return number


def part(text: str) -> tuple[int, int]:
    """A part of a whole, as K/N: the K-th of N."""
    number, _, of = (_whole(word) for word in text.partition("/"))
    if not isinstance(number, int) or not isinstance(of, int) or not 1 <= number <= of:
        raise argparse.ArgumentTypeError(f"a part is K/N, the K-th of N parts, such as 1/4 to 4/4; got {text!r}")
    return number, of


def port(text: str) -> int:
    """A TCP port: 1 to 65535."""
    number = _whole(text)
    if not isinstance(number, int) or not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"a port is a whole number from 1 to 65535; got {text!r}")
    return number


def own_address(text: str) -> str:
    """An address on which this machine can listen; "" and "*" are all of them."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            text.replace("*", "") or "0.0.0.0", 0, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, number) as probe:
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise argparse.ArgumentTypeError(
            f"this machine cannot listen on {text!r} ({why}); leave it out to listen to this machine only, give one of "
            "this machine's own addresses, or 0.0.0.0 for all of them"
        ) from None
    return text


def existing_folder_of(text: str) -> Path:
    """A file that will be written; its folder is there."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no file in a folder that exists")
    return path


def _whole(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text
