"""Values between the judge and a learner's ranks: JSON and raw tensors, never pickle.

Reading a pickle runs code that its writer chose; the judge reads what a learner's process wrote, so it must not.
Whatever does not follow the format is refused (`Malformed`), never guessed at.
"""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import torch

MAX_BYTES = 256 << 20  # of one result; a rank that sends more has lost its way
_MAX_TEXT = 8 << 20  # bytes of its numbers, texts and lists: each becomes an object many times as large
_MAX_INT = 1 << 63
_MAX_DEPTH = 20
_LENGTH = struct.Struct("!Q")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool),
    )
}


class Malformed(ValueError):
    """The bytes are not what `dump` writes."""


def dump(value: Any) -> bytes:
    """A value as bytes: None, bool, int, float, str, tensors; lists, tuples (as lists) and dicts of these.

    Raises:
        TypeError: something else is in it; the text says where.
    """
    tensors: list[bytes] = []
    text = json.dumps(_plain(value, "the result", tensors, 0)).encode()
    if len(text) > _MAX_TEXT or len(text) + sum(map(len, tensors)) > MAX_BYTES - _LENGTH.size:
        raise TypeError("the result is too large; return many numbers as one tensor, and less of them")
    return b"".join([_LENGTH.pack(len(text)), text, *tensors])


def load(data: bytes) -> Any:
    """What `dump` wrote. Raises Malformed for anything else."""
    if not _LENGTH.size <= len(data) <= MAX_BYTES:
        raise Malformed(f"{len(data):,} bytes are no result")
    (length,) = _LENGTH.unpack_from(data)
    rest = memoryview(data)[_LENGTH.size :]
    if length > min(len(rest), _MAX_TEXT):
        raise Malformed("the result is cut short, or its head is too long")
    try:
        plain = json.loads(bytes(rest[:length]))
        return _Builder(rest[length:]).build(plain)
    except (ValueError, KeyError, TypeError, RecursionError, RuntimeError, OverflowError) as error:
        raise Malformed(f"the result cannot be read: {type(error).__name__}") from error


def _plain(value: Any, where: str, tensors: list[bytes], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise TypeError(f"{where} is nested more than {_MAX_DEPTH} deep")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) >= _MAX_INT:
        raise TypeError(f"{where} is a whole number of more than 64 bits")
    if isinstance(value, int | float):
        return {"f": repr(float(value))} if isinstance(value, float) else int(value)
    if isinstance(value, torch.Tensor):
        known = str(value.dtype).removeprefix("torch.") in _DTYPES
        if not known or value.layout is not torch.strided or value.is_meta:
            what = f"{value.dtype}, {value.layout}, on {value.device}"
            raise TypeError(f"{where} is a tensor of {what}: return a dense tensor of numbers")
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        plain = plain.clone(memory_format=torch.contiguous_format)  # `contiguous()` keeps odd strides of one element
        raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        start = sum(map(len, tensors))
        tensors.append(raw)
        name = str(plain.dtype).removeprefix("torch.")
        return {"t": [name, list(plain.shape), start, len(raw)]}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{where}[{i}]", tensors, depth + 1) for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str | int) for key in value):
            raise TypeError(f"{where} is a dict whose keys are not all texts or whole numbers")
        return {"d": [[key, _plain(v, f"{where}[{key!r}]", tensors, depth + 1)] for key, v in value.items()]}
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of numpy's
        return _plain(value.item(), where, tensors, depth + 1)
    raise TypeError(
        f"{where} is of type {type(value).__name__}; return numbers, texts, tensors, or lists and dicts of them"
    )


class _Builder:
    """Makes the values of a result. The bytes of its tensors follow each other and are used once, as `dump` has them:
    otherwise a short result could fill the memory."""

    def __init__(self, raw: memoryview) -> None:
        self._raw, self._used = raw, 0

    def build(self, plain: Any, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH + 1:
            raise Malformed("the result is nested too deep")
        if isinstance(plain, list):
            return [self.build(v, depth + 1) for v in plain]
        if not isinstance(plain, dict):
            return plain
        if len(plain) != 1:
            raise Malformed("an unknown mark")
        ((mark, content),) = plain.items()
        if mark == "f":
            return float(content)
        if mark == "d":
            return {key: self.build(v, depth + 1) for key, v in content}
        if mark == "t":
            return self._tensor(*content)
        raise Malformed("an unknown mark")

    def _tensor(self, name: str, shape: list[int], start: int, length: int) -> torch.Tensor:
        dtype = _DTYPES[name]
        if not all(type(size) is int and size >= 0 for size in shape):
            raise Malformed("a tensor of an impossible shape")
        end = self._used + math.prod(shape) * dtype.itemsize
        if type(start) is not int or type(length) is not int or (start, start + length) != (self._used, end):
            raise Malformed("a tensor whose bytes do not fit its shape")
        if end > len(self._raw):
            raise Malformed("the result is cut short")
        self._used = end
        if not length:
            return torch.empty(shape, dtype=dtype)
        flat = torch.frombuffer(bytearray(self._raw[start:end]), dtype=torch.uint8)
        return flat.view(dtype).reshape(shape).clone()  # a clone can be resized, as any tensor
