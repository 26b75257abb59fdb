"""Functions and values between the notebook and its ranks: cloudpickle, so notebook code travels, GPU tensors as CPU.

Used only between a person's own processes. The grader, which must not trust the sender, does not use it.
"""

import io
import linecache
import sys
from typing import Any

import cloudpickle

from .errors import NotSendable


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        # The process that reads this may have no GPU, and must not open one only to look at a value.
        if torch is not None and isinstance(obj, torch.Tensor) and obj.device.type != "cpu":
            return obj.detach().cpu().__reduce_ex__(4)
        return super().reducer_override(obj)


def pack(value: Any, what: str) -> bytes:
    """`value` as bytes. Raises NotSendable naming `what` and the reason."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(value)
    except Exception as error:  # pickling runs arbitrary __reduce__ methods: anything can come out
        raise NotSendable(
            f"{what} cannot travel between processes: {error}.\n"
            "Things that belong to one process (open files, locks, generators, process groups, running threads) have "
            "to be made inside the function that runs on the ranks; return plain values and tensors."
        ) from error
    return buffer.getvalue()


def unpack(data: bytes) -> Any:
    """What `pack` made. Raises NotSendable if a module is missing on this side."""
    try:
        return cloudpickle.loads(data)
    except ModuleNotFoundError as error:
        raise NotSendable(
            f"the other side sent something from the module {error.name!r}, which cannot be imported here. "
            "Put its folder on sys.path, or define the function in the notebook."
        ) from error


def notebook_sources() -> dict[str, dict[str, str]]:
    """Source text of notebook cells, which exist in no file: tracebacks and the record quote it."""
    labels = {}
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        labels = dict(getattr(shell.compile, "_filename_map", {}))
    sources = {}
    for name, entry in list(linecache.cache.items()):
        if len(entry) == 4 and entry[1] is None and not name.startswith("<frozen"):
            label = f"Cell In[{labels[name]}]" if name in labels else f'File "{name}"'
            sources[name] = {"text": "".join(entry[2]), "label": label}
    return sources
