"""DeepSpeed as a course can use it: no compiler, no lock that hangs, no wall of log lines, the processor if asked."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from pathlib import Path
from typing import Any

OP_OF_SHARED_MEMORY = "deepspeed_shm_comm"


def extensions_folder() -> Path:
    """Where compiled operators go: a folder of the course's own, so that a stale lock in it is nobody else's."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache / "dtlearn" / "torch_extensions")


def has_deepspeed() -> bool:
    """Whether this Python can import DeepSpeed; it is not imported."""
    return importlib.util.find_spec("deepspeed") is not None


def quiet_deepspeed(*, allow_fp16: bool = False, on_processor: bool = True) -> Any:
    """Import DeepSpeed so that nothing is compiled, and return the module. Call it before `deepspeed.initialize`.

    On the processor the first `init_distributed` would compile an all-reduce through shared memory: half a minute, a
    compiler and ninja, and an interrupt leaves a lock behind on which every later run waits without a word. Without
    that operator DeepSpeed sends over gloo, and the same values come out. It is switched off in
    `deepspeed.ops.__compatible_ops__`, a private dictionary: DeepSpeed 0.19 has no public switch.

    Args:
        allow_fp16: have DeepSpeed believe that this device can do fp16. Its check says no for every processor, though
            torch computes fp16 there (slowly).
        on_processor: without a GPU; the accelerator is said, and not guessed with a warning.

    Raises:
        ValueError: DeepSpeed is not installed here.
    """
    if not has_deepspeed():
        from .environment import HOW_TO_INSTALL

        raise ValueError(f"DeepSpeed is not installed for this Python. {HOW_TO_INSTALL}")
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(extensions_folder()))
    if on_processor:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("DS_LOG_LEVEL", "error")
    deepspeed = importlib.import_module("deepspeed")
    operators = importlib.import_module("deepspeed.ops")
    operators.__compatible_ops__[OP_OF_SHARED_MEMORY] = False
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    if allow_fp16:
        accelerator = importlib.import_module("deepspeed.accelerator").get_accelerator()
        accelerator.is_fp16_supported = lambda: True
    return deepspeed
