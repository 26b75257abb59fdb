"""One rank's process groups: made through a file, kept, and made again after a collective that got stuck.

Runs on the ranks. gloo has no working abort (measured: `abort()`, `shutdown()` and SIGINT leave a stuck collective
stuck); shutting down the sockets of its connections frees it. So the sockets that each group opens are remembered, and
the files of stores, in which ranks wait that make a group.

Groups outlive what uses them, so that no destructor waits for a thread that waits for it. The recorder asks to be
told, in Python, when a call's data has arrived; gloo's thread needs the interpreter's lock for that. The destructor of
a group waits for gloo's threads. torch lets go of the lock when Python drops a group, but not when the last one to hold
it is C++: the reducer of a DistributedDataParallel that is replaced, say, after its groups were made again. Then each
waits for the other, for ever. A group that Python still holds is not destroyed by anybody. Once its connections are cut
and the groups were made again once more, no call of it is under way: then it goes, with its threads and descriptors.
"""

import contextlib
import functools
import gc
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from .spec import RankSpec
from .store import connect

# (generation, group), of this generation and the one before; the latest, because very many groups of one would add up.
_KEPT: deque[tuple[int, Any]] = deque(maxlen=64)


@dataclass
class RankGroup:
    """How this rank joins the default group, generation after generation."""

    # A collective gives up by itself after its `group_timeout`: the second net, the launcher is the first.
    spec: RankSpec
    generation: int = 0  # how often the group was made again
    at_work: bool = False  # it makes the group, or ends it: what happens now is no doing of learners' code
    _files: list[Path] = field(default_factory=list)  # of the stores of this generation
    _sockets: dict[int, int] = field(default_factory=dict)  # file descriptor -> inode, of the groups' connections

    def init(self) -> None:
        """Join the default group of this generation. All ranks call it."""
        import torch
        import torch.distributed as dist

        spec = self.spec
        store = self.store(f"store-{self.generation}")
        if spec.device != "cpu":
            torch.cuda.set_device(spec.device)
        with self._works():
            dist.init_process_group(
                spec.backend,
                store=store,
                rank=spec.rank,
                world_size=spec.world_size,
                timeout=timedelta(seconds=spec.group_timeout),
                device_id=torch.device(spec.device) if spec.backend == "nccl" else None,
            )

    def store(self, name: str) -> Any:
        """Where the ranks find each other. One that was used before makes them meet the dead: each group has its own.

        Args:
            name: the same on all ranks.
        """
        import torch.distributed as dist

        spec = self.spec
        if address := spec.on_node.store:  # of ranks on several hosts
            return connect(address, name, spec.group_timeout)
        self._files.append(Path(spec.run_dir, name))
        return dist.FileStore(str(self._files[-1]), spec.world_size)

    @contextlib.contextmanager
    def _works(self) -> Iterator[None]:
        self.at_work = True
        try:
            yield
        finally:
            self.at_work = False

    def remake(self, generation: int) -> None:
        """Leave the groups of this generation and join the default group of another. All ranks call it."""
        import torch.distributed as dist

        self.generation = generation
        if dist.is_initialized():
            # Its connections may be cut; a group that can't be left politely is dropped all the same.
            with contextlib.suppress(RuntimeError), self._works():
                dist.destroy_process_group()
        self._cut()  # ends what was begun and never waited for; a group with a call under way cannot be freed
        self._sockets.clear()
        self._files.clear()
        self.init()
        gc.collect()  # an exception and its frames hold each other, and with them the groups they were about
        while _KEPT and _KEPT[0][0] < generation - 1:
            _KEPT.popleft()

    def abort(self) -> int:
        """Free this rank from a stuck collective, from another thread. Call it on every rank.

        Returns how many connections were cut. The groups are unusable afterwards: call `remake`.
        """
        if self.spec.backend == "nccl":
            from torch.distributed.distributed_c10d import _abort_process_group

            _abort_process_group()
        self._spoil_stores()
        return self._cut()

    def _spoil_stores(self) -> None:
        """Free ranks that wait in a store for others that do not come, as when a group is made.

        A link to itself cannot be opened, so that the next look into it fails, and a moment later each rank's wait.
        """
        for path in self._files:
            with contextlib.suppress(OSError):
                link = path.with_name(f"{path.name}.{self.spec.rank}")
                link.symlink_to(path.name)
                link.replace(path)
        self._files.clear()

    def _cut(self) -> int:
        """Cut the connections of the groups. Returns how many there were."""
        cut = 0
        for descriptor, inode in list(self._sockets.items()):
            # The number may have been closed and given to another file since: cut only what is still ours.
            if _open_sockets().get(descriptor) == inode:
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
                    cut += 1
        return cut

    def follow_new_groups(self) -> None:
        """From now on keep every group that is made (init, `new_group`, a device mesh); remember its connections."""
        from torch.distributed import distributed_c10d

        make: Callable[..., Any] | None = getattr(distributed_c10d, "_new_process_group_helper", None)
        if make is None:  # a torch that makes groups elsewhere: they are freed as it likes, `abort` finds nothing
            return

        @functools.wraps(make)
        def followed(*args: Any, **kwargs: Any) -> Any:
            before = _open_sockets()
            try:
                group = make(*args, **kwargs)
                _KEPT.append((self.generation, group))
                return group
            finally:
                opened = {fd: inode for fd, inode in _open_sockets().items() if before.get(fd) != inode}
                self._sockets.update((fd, inode) for fd, inode in opened.items() if _is_connection(fd))

        distributed_c10d._new_process_group_helper = followed


def _open_sockets() -> dict[int, int]:
    """This process's open sockets: `{file descriptor: inode}`."""
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    inodes = {}
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):  # closed in the meantime
            status = os.fstat(int(name))
            if status.st_mode & 0o170000 == 0o140000:  # S_IFSOCK
                inodes[int(name)] = status.st_ino
    return inodes


def _is_connection(descriptor: int) -> bool:
    """A TCP connection to a peer. Not gloo's listening socket: cutting that one aborts the whole process."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as opened:
        if opened.family in (socket.AF_INET, socket.AF_INET6) and opened.type == socket.SOCK_STREAM:
            return not opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return False
