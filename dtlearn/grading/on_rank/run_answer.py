"""The learner's side of a graded run: load the answer, call it as the check says, hand the result over as plain data.

Runs on the ranks. Nothing of a check comes here but the text of its `on_rank` and the inputs of this rank.
"""

import __future__

import linecache
import os
import struct
import sys
import threading
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...memory.ledger import outside_torch as outside_torch  # checks use it where a run sees no dtlearn.memory
from ...memory.ledger.storage_ledger import measured
from ...runtime.rank.task import mark
from ...runtime.recording.call_site import HANDED_OVER
from .. import plain_values
from . import left_running, stress

DRIVER_FILE = HANDED_OVER
_LENGTH = struct.Struct("!Q")
OWN_FRAMES = (str(Path(__file__).parents[1]), DRIVER_FILE)  # before those of the answer in every traceback


class BadResult(TypeError):
    """The answer returned something that cannot be compared."""


@dataclass(frozen=True)
class AnswerSpec:
    """What a rank is told. Plain values only."""

    # source, file: the learner's text, and the name that tracebacks show
    source: str
    file: str
    name: str  # of the function or class under test
    driver: str  # text that defines `on_rank`
    inputs: bytes  # what `plain_values.dump` made of the inputs of this rank; those of others are not in its memory
    # poison, delays, seed: see `check.Stress`
    poison: bool = False
    delays: float = 0.0
    seed: int = 0
    watch_inputs: bool = True  # report which inputs were changed
    measure_memory: bool = False  # report the peak of the memory of its tensors


def run_answers(specs: Sequence[AnswerSpec]) -> bytes:
    """Run several on this rank, one after the other, with a mark before each: `joined` results of `run_answer`."""
    results = []
    for number, spec in enumerate(specs):
        mark(f"run {number}")
        results.append(run_answer(spec))
    return joined(results)


def joined(parts: Sequence[bytes]) -> bytes:
    """Parts in one, each behind its length."""
    return b"".join(data for part in parts for data in (_LENGTH.pack(len(part)), part))


def separated(data: bytes) -> list[bytes]:
    """What was `joined`; what does not fit is left out."""
    parts, at = [], 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        parts.append(data[at : at + length])
        at += length
    return parts


def run_answer(spec: AnswerSpec) -> bytes:
    """Run the answer on this rank.

    Returns:
        `plain_values.dump` of {"value", "changed": names of inputs, "now": the first of them, "left": what still runs,
        "peak": bytes or None}.
    """
    import torch.distributed as dist

    here, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with stress.applied(spec.poison, spec.delays, seed=spec.seed * 1009 + here):
        answer = load_answer(spec)
        linecache.cache[DRIVER_FILE] = (len(spec.driver), None, spec.driver.splitlines(keepends=True), DRIVER_FILE)
        names: dict[str, Any] = {"torch": torch, "dist": dist, "rank": here, "world_size": size}
        # Its annotations name what exists in the judge only: they are not evaluated here.
        flags = __future__.annotations.compiler_flag
        exec(compile(spec.driver, DRIVER_FILE, "exec", flags=flags, dont_inherit=True), names)
        inputs = plain_values.load(spec.inputs)
        kept = plain_values.load(spec.inputs)
        functions = [v for k, v in names.items() if isinstance(v, types.FunctionType) and k not in ("dist", "torch")]
        threads = set(threading.enumerate())
        with measured(spec.measure_memory) as ledger:
            value = functions[0](answer, **inputs)
        left = left_running.left_running(threads)
    changed = [name for name in inputs if spec.watch_inputs and not same(inputs[name], kept[name])]
    try:
        peak = ledger.peak if ledger else None
        now = inputs[changed[0]] if changed else None
        return plain_values.dump({"value": value, "changed": changed, "now": now, "left": left, "peak": peak})
    except TypeError as error:
        text = str(error).replace("the result['value']", "the result", 1)
        raise BadResult(f"{spec.name}: {text}") from None


def load_answer(spec: AnswerSpec) -> Any:
    """The function or class that the learner's text defines."""
    module = types.ModuleType("exercise")
    module.__file__ = spec.file
    sys.modules["exercise"] = module  # classes and pickles look their module up
    lines = spec.source.splitlines(keepends=True)
    linecache.cache[spec.file] = (len(spec.source), None, lines, spec.file)
    exec(compile(spec.source, spec.file, "exec", dont_inherit=True), module.__dict__)  # not with this file's __future__
    if not hasattr(module, spec.name):
        raise NameError(f"the file defines no {spec.name!r}")
    return getattr(module, spec.name)


def same(a: Any, b: Any) -> bool:
    """Whether two values of `plain_values.load` are equal, NaNs included."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and (a == b or a != a)
