"""That what ranks learn of each other came over the network of `torch.distributed`, whose calls are recorded."""

from __future__ import annotations

from dtlearn.grading import Case, Finding, Given
from dtlearn.grading.rules import Limit, Rule, limit_of
from dtlearn.runtime.record.record import Record

from .own_work import find_forbidden

_WHY = "what goes through the store is not counted, and a store is slow. Use a collective of torch.distributed"
_STORES = dict.fromkeys(
    (
        *(f"torch.distributed.{name}" for name in ("Store", "FileStore", "HashStore", "PrefixStore", "TCPStore")),
        "torch.distributed.distributed_c10d._get_default_store",
        "torch.distributed.distributed_c10d._world",
        "torch.distributed.rendezvous",
    ),
    _WHY,
)
# Other ways from one process to another.
_MODULES: tuple[str, ...] = ("ctypes", "io", "mmap", "multiprocessing", "pathlib", "shelve", "shutil", "signal")
_MODULES += ("socket", "sqlite3", "subprocess", "tempfile", "torch.multiprocessing")
_OF_OS = ("open", "mkdir", "makedirs", "mkfifo", "pipe", "link", "symlink", "rename", "replace", "kill", "system")
_BACKENDS = tuple(f"torch.distributed.{name}.WORLD._get_backend" for name in ("group", "GroupMember"))  # not recorded
_FILES = ("builtins.open", "numpy.memmap", "numpy.load", "numpy.save", "torch.from_file", "torch.load", "torch.save")
_OTHER_WAYS = dict.fromkeys(
    (*_MODULES, *_BACKENDS, *_FILES, *(f"{module}.{name}" for module in ("os", "posix") for name in _OF_OS)),
    "ranks learn of each other through torch.distributed only, where it is counted",
)


def no_stores(source: str) -> Finding | None:
    """A rule on an answer's text: it exchanges nothing through a store, a file or a socket, which no record shows."""
    return find_forbidden(source, _STORES | _OTHER_WAYS)


def no_silent_rank(least_calls: Limit | None = None, least_bytes: Limit | None = None) -> Rule:
    """Every rank of several makes at least so many calls that carry data, or hands over so many bytes.

    For exercises whose right values nobody can know without them: an answer that has them all the same used what no
    record shows, such as files, and its budget means nothing.
    """

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for rank in range(case.world_size if case.world_size > 1 else 0):
            events = [event for event in record.select(rank=rank) if event.nbytes]
            for made, least, did, unit in (
                (len(events), least_calls, "made", "calls of torch.distributed with data"),
                (sum(event.nbytes for event in events), least_bytes, "sent", "bytes through torch.distributed"),
            ):
                if least and made < (needed := limit_of(least, case, given)):
                    text = (
                        f"the values are right here, but rank {rank} {did} {made:,} {unit} in this case, and at least"
                    )
                    text += f" {needed:,.0f} would have asked the others: it is right by chance, or ranks learn of each"
                    text += " other where nobody counts, through a file, a store or shared memory"
                    return Finding("DTL-RULE-CALLS", text, rank)
        return None

    return rule
