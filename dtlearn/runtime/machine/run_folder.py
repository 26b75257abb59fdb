"""The private folder of each run, and the folders of runs whose program was killed before it could delete them."""

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import LaunchError
from .processes import start_time

_PREFIX, _OWNER = "dtlearn-", "owner.json"


def new_run_directory() -> Path:
    """A new private directory. Its name is short: names of local sockets are limited to about 100 bytes.

    It says which process made it, so that a later one can tell whether it is still in use. Raises LaunchError if none
    can be made.
    """
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_base()))
        (path / _OWNER).write_text(json.dumps(_identity(os.getpid())))
        return path
    except OSError as error:
        raise LaunchError(
            f"no temporary folder can be written ({error}). Free some space, or set TMPDIR to a folder that you own."
        ) from error


@contextlib.contextmanager
def run_directory() -> Iterator[Path]:
    """A private directory for one run, deleted afterwards. Raises LaunchError if none can be made."""
    path = new_run_directory()
    try:
        yield path
    finally:
        delete_folder(path)


def delete_folder(path: Path) -> None:
    """Delete a folder of a run, however deep ranks have made it: every folder in it is first moved to its top.

    (A way down is longer than paths may be, and than functions may call themselves.) What cannot be deleted stays.
    """
    base, number, todo = path / secrets.token_hex(8), 0, [path]
    while todo:
        folder = todo.pop()
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
            with os.scandir(folder) as entries:
                for entry in list(entries):
                    with contextlib.suppress(OSError):
                        if not entry.is_dir(follow_symlinks=False):
                            os.unlink(entry.path)
                            continue
                        os.chmod(entry.path, 0o700)  # to move it, what is above it has to be written into it
                        number += 1
                        os.rename(entry.path, at := f"{base}-{number}")
                        todo.append(Path(at))
            if folder != path:
                folder.rmdir()
    with contextlib.suppress(OSError):
        path.rmdir()


def delete_stale_directories() -> list[Path]:
    """Delete, and return, folders of runs whose program is gone: they stay only when it and its agent were both killed.

    Never by name alone: a folder must be this user's and say who made it, and that process must have ended. Its
    number is compared with its start time, on this machine, since the machine was started, among the processes that
    we can see: containers may share the folder for temporary files.
    """
    deleted = []
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(_base())):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
                    continue
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    owner = json.loads(Path(entry.path, _OWNER).read_text())
                    now = _identity(int(owner["pid"]))
                    gone = owner["start"] is not None and owner["start"] != now["start"]
                    if gone and {**owner, "start": None} == {**now, "start": None}:
                        delete_folder(Path(entry.path))
                        deleted.append(Path(entry.path))
    return deleted


def _base() -> str:
    base = tempfile.gettempdir()
    return base if len(os.fsencode(base)) < 60 else "/tmp"


def _identity(pid: int) -> dict[str, object]:
    """What names a process for good; `start` is None if it is gone, or the system does not say."""
    boot, space = "", ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    return {"pid": pid, "start": start_time(pid), "boot": boot, "space": space}
