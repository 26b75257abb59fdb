"""`dtlearn node`: make this machine a node of a lab. `dtlearn lab-token`: make the token that lets nodes in."""

import argparse
import os
import socket
import sys
from pathlib import Path
from typing import Any

from ..runtime.errors import LaunchError
from ..runtime.lab.token import head_file, make_token, parse_token, read_token
from ..runtime.machine.processes import take_endings
from .arguments import add_example_parser, existing_folder_of


def add_commands(commands: Any) -> None:
    parser = add_example_parser(
        commands,
        "node",
        "Make this machine a node of a lab: ranks of a notebook elsewhere run here. Ctrl-C ends it, with its ranks.",
        "dtlearn node --join 192.168.1.10:47600 --token-file lab.token",
        run,
    )
    parser.add_argument(
        "--join", required=True, type=head_address, metavar="ADDRESS:PORT", help="where the head listens"
    )
    parser.add_argument(
        "--token-file", required=True, help="the lab's token, a file of mode 0600; - reads it from input"
    )
    parser.add_argument("--name", default=socket.gethostname(), help="its `host` in lab.toml (default: %(default)s)")
    parser.add_argument("--interface", help="network interface of the ranks (default: the one that leads to the head)")
    parser.add_argument("--directory", help="working directory of the ranks (default: this one)")
    token = add_example_parser(
        commands,
        "lab-token",
        "Make a new token of a lab: copy the file to every node, over a safe way. Older copies are no good then.",
        "dtlearn lab-token lab.token",
        run_token,
    )
    token.add_argument("file", type=existing_folder_of)


def head_address(text: str) -> tuple[str, int]:
    """ "192.168.1.10:47600" -> address and port; a name is looked up."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise argparse.ArgumentTypeError(f"must be an address and a port such as 192.168.1.10:47600; got {text!r}")
    try:
        return str(socket.gethostbyname(host)), int(port)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{host} has no address: {error.strerror}") from None


def run(options: argparse.Namespace) -> int:
    """Serve until the head leaves. Raises LaunchError if this machine may or can not be a node."""
    from ..runtime.lab.node.node import Node

    token = (
        parse_token(sys.stdin.read(), "standard input")
        if options.token_file == "-"
        else read_token(Path(options.token_file))
    )
    if options.directory:
        try:
            os.chdir(options.directory)
        except OSError as error:
            raise LaunchError(f"the directory {options.directory} cannot be used here: {error.strerror}") from error
    take_endings()  # a closed terminal, too, ends ranks and leaves no folder
    node = Node(options.join, options.name, token, options.interface, lambda text: print(text, flush=True))
    print(node.run(), flush=True)
    return 0


def run_token(options: argparse.Namespace) -> int:
    """Make the token."""
    make_token(options.file)
    print(f"{options.file}: for the nodes. {head_file(options.file)}: the head's own key, never copied.")
    return 0
