"""New namespaces around a process: processes, network, shared memory and files of its own (Linux).

Run as a script it tries whether this machine lets it, and prints a level with the reason why it is not higher. Only
the standard library, and nothing of dtlearn: for the trial it must be small and on one thread, as the kernel demands.
"""

import contextlib
import ctypes
import functools
import json
import os
import socket
import struct
import sys
from collections.abc import Collection, Sequence

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 2, 4, 24
_PR_SET_TIMERSLACK, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 29, 36, 38
_NEW_MOUNT, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC = 2, 4, 8, 0x1000, 0x4000
_MS_PRIVATE = 1 << 18
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1
_CAPABILITY_VERSION = 0x20080522
_SIOCSIFFLAGS, _UP = 0x8914, 1
_LEAST_PID_MAX = 301  # the kernel refuses less
_OWN = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # folders that every run gets empty and for itself
_OWN_SIZE = "1g"
# Folders of a machine that are the system's, besides /lib, /lib64, ...: nobody keeps work there.
_SYSTEM = ("bin", "etc", "gnu", "nix", "proc", "sbin", "snap", "sys", "usr")
_DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")


def adopt_orphans() -> bool:
    """Become the parent of every process below this one that loses its own. False: the system cannot do it."""
    return sys.platform == "linux" and not _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int = 9) -> bool:
    """Get that signal when the thread that forked this process ends. False: the system cannot do it."""
    return sys.platform == "linux" and not _libc().prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def set_timer_slack(nanoseconds: int) -> None:
    """Set how much too late this thread may be woken; 50 us where nobody asks for less."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0)


def keep_out() -> None:
    """No process without privileges may trace this one or look into its memory and files from now on."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def enter() -> None:
    """Enter new namespaces, under the same user and group number. The next process that is forked is number 1 in them.

    Raises OSError if they are refused; `filename` says which.
    """
    user, group = os.getuid(), os.getgid()
    _check(_libc().unshare(_NEW_USER), "user namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    # Some systems grant the first step, but no rights in it: only these show whether it is of use.
    _check(_libc().unshare(_NEW_PID | _NEW_NET | _NEW_IPC | _NEW_MOUNT), "pid, network and mount namespaces")


def furnish(
    own: Sequence[str] = (),
    writable: Sequence[str] = (),
    readable: Sequence[str] = (),
    hidden: Sequence[str] = (),
    alone: bool = False,
    processes: int | None = None,
) -> None:
    """As process number 1 of new namespaces: a network and a view of the files for all that will be forked from it.

    No file can be written, but in `writable` and in folders that are new, empty and this run's own: those for temporary
    files and `own`. In the end this process has no privileges any more, nor will any that it forks get some.

    Args:
        own: more folders to give to the run empty.
        writable: folders that exist and that it may change.
        readable: files and folders to show although they lie in one of its own; in a hidden one only if `alone`.
        hidden: files and folders to show empty.
        alone: of all that is not the system's, only `readable`, `writable` and a few devices can be read.
        processes: most processes and threads at a time; before Linux 6.14 this does nothing.

    Raises:
        OSError: refused; `filename` says what.
    """
    _bring_up_loopback()
    # Looked up and opened now: afterwards the way to those below an empty folder is covered.
    names = {os.path.abspath(path): os.path.realpath(path) for path in (*own, *writable, *readable)}
    empty = {os.path.realpath(path) for path in (*_OWN, *own) if os.path.isdir(path)}
    change, closed, show = ({os.path.realpath(path) for path in paths} for paths in (writable, hidden, readable))
    if alone:
        closed, show = closed | _outside_the_system(), show.union(_DEVICES)
    show = {path for path in show if _inside(path, empty | closed) and (alone or not _inside(path, closed))}
    show = (show | change) - empty - closed
    handles = {path: os.open(path, os.O_PATH) for path in show if os.path.exists(path)}
    _set_attributes("/", _ATTR_RDONLY, 0, recursive=True)
    hiding = []
    for path in sorted(empty | closed | handles.keys()):  # of two in each other the inner one is the later, and counts
        if path in handles:
            _show(path, handles[path])
            if path in change:
                _set_attributes(path, 0, _ATTR_RDONLY)
        elif path in empty:
            os.makedirs(path, exist_ok=True)
            _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777,size={_OWN_SIZE}")
        elif os.path.isdir(path):
            _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=64k")
            hiding.append(path)
        elif os.path.exists(path):
            _mount("/dev/null", path, None, _MS_BIND)
    for name, path in names.items():
        if name != path:  # the way to it was a link, which may be covered now
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(name), exist_ok=True)
                os.symlink(path, name)
    for path in hiding:
        _set_attributes(path, _ATTR_RDONLY, 0)
    _show_own_processes(processes)
    os.chdir("/")
    _drop_privileges()


def _inside(path: str, folders: Collection[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _outside_the_system() -> set[str]:
    with os.scandir("/") as entries:
        others = [e for e in entries if e.name not in _SYSTEM and not e.name.startswith("lib")]
    return {e.path for e in others if not e.is_symlink()}


def _show(path: str, handle: int) -> None:
    source = f"/proc/self/fd/{handle}"
    if not os.path.exists(path):
        os.makedirs(path if os.path.isdir(source) else os.path.dirname(path), exist_ok=True)
        if not os.path.isdir(source):
            open(path, "x").close()
    _mount(source, path, None, _MS_BIND | _MS_REC)
    os.close(handle)


def _show_own_processes(most: int | None) -> None:
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    try:
        _mount("proc", "/proc", "proc", flags)
    except OSError:
        return  # containers refuse it; then names of processes outside can be read, and nothing else of them
    if most is not None:
        with contextlib.suppress(OSError), open("/proc/sys/kernel/pid_max", "w") as file:
            file.write(str(max(_LEAST_PID_MAX, most + 1)))
    _set_attributes("/proc", _ATTR_RDONLY, 0)


def _bring_up_loopback() -> None:
    import fcntl

    with socket.socket() as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))


def _drop_privileges() -> None:
    """The rights in the new namespaces would be enough to undo all of the above."""
    libc, number = _libc(), 0
    while not libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0):
        number += 1
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "giving up privileges")
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _check(libc.capset(header, bytes(24)), "giving up privileges")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = [os.fsencode(text) if text is not None else None for text in (source, target, kind)]
    _check(_libc().mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"a mount on {target}")


def _set_attributes(path: str, add: int, remove: int, recursive: bool = False) -> None:
    attributes = struct.pack("=QQQQ", add, remove, _MS_PRIVATE if recursive else 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    # By number: C libraries older than the call have no name for it.
    call = [ctypes.c_long(_SYS_MOUNT_SETATTR), _AT_FDCWD, os.fsencode(path), flags, attributes]
    _check(_libc().syscall(*call, ctypes.c_size_t(len(attributes))), "read-only files (they need Linux 5.12)")


_libc = functools.cache(functools.partial(ctypes.CDLL, None, use_errno=True))


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def refusal(error: OSError) -> str:
    """Why it cannot be had, for a person."""
    return f"{error.filename or 'their network'} refused: {os.strerror(error.errno or 0)}"


def try_here() -> tuple[int, str]:
    """Try it in this process, which is changed by it. Returns the level, and why it is not higher, or ""."""
    if sys.platform != "linux":
        return 0, f"{sys.platform} cannot tie the life of a process to its parent's"
    set_signal = ctypes.c_int()
    if not die_with_parent() or not adopt_orphans():
        return 0, "prctl is forbidden here"
    if _libc().prctl(_PR_GET_PDEATHSIG, ctypes.byref(set_signal)) or set_signal.value != 9:
        return 0, "prctl has no effect here"
    try:
        enter()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(write, _try_inside().encode())
            finally:  # also when it raises: only the parent goes on from here
                os._exit(0)
        os.close(write)
        with open(read) as answer:
            limit = answer.read()
        os.waitpid(pid, 0)
        return (2, "") if limit == "works" else (1, limit or "a process in new namespaces ended at once")
    except OSError as error:
        return 1, refusal(error)


def _try_inside() -> str:
    try:
        furnish()
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=1).close()
        return "works" if os.getpid() == 1 else "new namespaces have no effect here"
    except OSError as error:
        return refusal(error)


if __name__ == "__main__":
    print(json.dumps(try_here()))
