"""The calls of the operating system that a save makes, in order, and what a power cut may leave after each of them.

By the model of `practice.disk`, in which names and bytes are forced to the disk each by itself. It knows one folder of
files. So a checkpoint's folder is one such disk; in the job's folder it is a file that holds the name it was made with.
"""

import os
from pathlib import Path

from dtlearn.production.practice.disk import DiskCall, left_after


class RecordedCalls:
    """While it is entered, notes what is written, forced, renamed and removed in a job's folder.

    Attributes:
        calls: (name of the folder in which the call was made, "" for the job's; the call), in order.
    """

    def __init__(self, folder, monkeypatch):
        self.folder, self.calls, self._paths, self._data = Path(folder), [], {}, {}
        self._made = {}  # of a folder that has another name by now, the first one
        for name in ("open", "write", "fsync", "mkdir", "rename", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, self._noting(getattr(os, name), getattr(self, f"_{name}")))

    def _noting(self, real, note):
        def call(*args, **kwargs):
            value = real(*args, **kwargs)
            note(value, *args)
            return value

        return call

    def _place(self, path):
        """The folder that something lies in, "" for the job's, and its name there; None: it lies elsewhere."""
        path = Path(path)
        if not path.is_relative_to(self.folder):
            return None
        *inner, name = path.relative_to(self.folder).parts or ("",)
        return (self._made.get(inner[0], inner[0]) if inner else ""), name

    def _add(self, place, verb, to="", data=b""):
        self.calls.append((place[0], DiskCall(0, 0, verb, place[1], to, data)))

    def _open(self, descriptor, path, flags, *_):
        self._paths[descriptor] = path
        if flags & os.O_CREAT and (place := self._place(path)) and place[1] != ".lock":
            self._data[descriptor] = b""
            self._add(place, "write")

    def _write(self, written, descriptor, data):
        if place := self._place(self._paths.get(descriptor, "")):
            self._data[descriptor] += bytes(data[:written])
            self._add(place, "write", data=self._data[descriptor])

    def _fsync(self, _, descriptor):
        path = Path(self._paths[descriptor])
        if path.is_dir():
            inner = "" if path == self.folder else self._made.get(path.name, path.name)
            self._add((inner, ""), "fsync_folder")
        elif place := self._place(path):
            self._add(place, "fsync")

    def _mkdir(self, _, path, *__):
        if place := self._place(path):
            self._made[place[1]] = place[1]
            self._add(place, "write", data=place[1].encode())
            self._add(place, "fsync")  # what is in it, its own disk tells

    def _rename(self, _, old, new):
        if place := self._place(old):
            self._made[Path(new).name] = self._made.get(place[1], place[1])
            self._add(place, "rename", Path(new).name)

    def _unlink(self, _, path, **__):
        if place := self._place(path):
            self._add(place, "remove")

    _rmdir = _unlink


def after_power_cuts(recorded, before):
    """For a power cut after each call: what `latest` may hold, and by name what each step's folder may be.

    Args:
        recorded: the calls.
        before: of the job's folder: the names of checkpoints, which are whole, and "latest".

    Yields:
        The last call, the contents of `latest`, and {name of a step's folder: {True: whole, False: not, None: gone}}.
    """
    for number in range(1, len(recorded.calls) + 1):
        calls = recorded.calls[:number]
        outer = left_after(before, [call for place, call in calls if not place], power_cut=True)
        whole = {place: _is_whole([call for p, call in calls if p == place]) for place, _ in calls}
        steps = {
            name: {made if made is None else whole.get(made.decode(), True) for made in contents}
            for name, contents in outer.items()
            if name.startswith("step-")
        }
        yield calls[-1][1], outer["latest"], steps


def _is_whole(calls):
    """Whether all files of a checkpoint are there after a power cut as they were written, the manifest too."""
    written = {call.name for call in calls if call.verb == "write"}
    cut, now = left_after({}, calls, power_cut=True), left_after({}, calls)
    return "manifest.json" in written and all(cut[name] == now[name] != {None} for name in written)
