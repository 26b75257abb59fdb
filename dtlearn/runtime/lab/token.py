"""Who may join a lab: key pairs of CurveZMQ in two files that only their owner can read.

The token file goes to the nodes: the head's public key, and the one client key pair that the head lets in. The head's
secret key stays beside it, in a file of its own, so that a node cannot play the head.
"""

import contextlib
import json
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

import zmq

from ..errors import LaunchError
from ..machine.whole_file import write_whole


@dataclass(frozen=True)
class Token:
    """What a node needs to join: keys in the text form of CurveZMQ (Z85, 40 characters)."""

    head_public: str
    node_public: str
    node_secret: str

    def text(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def make_token(path: Path) -> Token:
    """Make new keys: `path` for the nodes, `path` + ".head" for the head. Raises LaunchError if they can't be kept."""
    if not zmq.has("curve"):
        raise LaunchError("this ZeroMQ library has no CURVE encryption; install pyzmq from its wheel")
    (head_public, head_secret), (node_public, node_secret) = zmq.curve_keypair(), zmq.curve_keypair()
    token = Token(head_public.decode(), node_public.decode(), node_secret.decode())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(head_file(path), json.dumps({"head_secret": head_secret.decode()}) + "\n")
        write_whole(path, token.text())
    except OSError as error:
        raise LaunchError(f"the lab's token cannot be written: {error}; choose another `token_file`") from error
    return token


def head_file(path: Path) -> Path:
    """Where the head's own secret key lies."""
    return path.with_name(path.name + ".head")


def head_keys(path: Path) -> tuple[Token, str]:
    """The token and the head's secret key; made now if there is no token yet."""
    if not path.exists():
        make_token(path)
    token = read_token(path)
    secret = json.loads(_read_private(head_file(path)))["head_secret"]
    return token, str(secret)


def read_token(path: Path) -> Token:
    """The token in a file. Raises LaunchError if it is missing, readable by others, or no token."""
    return parse_token(_read_private(path), str(path))


def parse_token(text: str, where: str) -> Token:
    """A token from its text. Raises LaunchError if it is none."""
    with contextlib.suppress(ValueError, TypeError):
        token = Token(**json.loads(text))
        if all(isinstance(key, str) and len(key) == 40 for key in asdict(token).values()):
            return token
    raise LaunchError(f"{where} holds no token of a lab; copy the head's token file again")


def _read_private(path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise LaunchError(f"{path} can be read by others (mode {mode:o}); make it yours alone: chmod 600 {path}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(
            f"{path} cannot be read ({error}). `dtlearn lab-token FILE` on the head makes a token; "
            "copy that file to every node."
        ) from error
