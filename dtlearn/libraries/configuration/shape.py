"""Keys of a `ds_config` that are none, and values that are none for their key: each looked at alone."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from ..require import is_number, is_whole
from .keys import ACTIVATIONS, ALSO_KNOWN, DS_KEYS, OLD_NAMES, READ_NOWHERE, REMOVED, ConfigKey, Z

FREE = ("optimizer.params", "scheduler.params", "tensor_parallel.partition_config")  # whatever stands in there
PATHS = (*(key.path for key in DS_KEYS), *ALSO_KNOWN)
SECTIONS = tuple(dict.fromkeys(path[:place] for path in PATHS for place in range(len(path)) if path[place] == "."))
MAY_BE_NONE = (f"{Z}.offload_optimizer", f"{Z}.offload_param")
DEVICES = ("none", "cpu", "nvme")
# What the default does not tell: None, or a whole number where a fraction is taken too.
KINDS: dict[str, type] = {
    "train_batch_size": int,
    "train_micro_batch_size_per_gpu": int,
    "gradient_accumulation_steps": int,
    f"{Z}.overlap_comm": bool,
    f"{ACTIVATIONS}.number_checkpoints": int,
    "fp16.min_loss_scale": float,
}


def unknown_keys(config: Mapping[Any, Any], section: str = "") -> Iterator[str]:
    """A sentence for every key that DeepSpeed does not know, with the nearest that it does."""
    for name, value in config.items():
        if not isinstance(name, str):
            yield f"keys of a ds_config are texts, got {name!r}{f' in {section[:-1]}' if section else ''}."
            continue
        path = f"{section}{name}"
        if path in REMOVED:
            continue
        if path in PATHS or path in SECTIONS:
            if isinstance(value, Mapping) and path in SECTIONS and path not in ALSO_KNOWN and path not in FREE:
                yield from unknown_keys(value, f"{path}.")
            continue
        near = _nearest(name, section)
        hint = f"did you mean {near}?" if near else "take it out."
        harm = "DeepSpeed ignores it without a word" if not section else "DeepSpeed may refuse it"
        yield f"{path if name else section + repr(name)} is no key of a ds_config: {harm}; {hint}"


def _nearest(name: str, section: str) -> str:
    """The key that was meant: of that name in another section, nearly so in this one, or nearly so elsewhere."""
    elsewhere = {path.rpartition(".")[2]: path for path in (*PATHS, *SECTIONS)}
    if name in elsewhere:
        return elsewhere[name] + (" at the top" if "." not in elsewhere[name] else "")
    here = {known[len(section) :].partition(".")[0] for known in PATHS if known.startswith(section)}
    near = difflib.get_close_matches(name, here, 1)
    return near[0] if near else next((elsewhere[n] for n in difflib.get_close_matches(name, elsewhere, 1)), "")


def removed_keys(config: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for every key that DeepSpeed knew once, and raises for now."""
    for path, instead in REMOVED.items():
        if _has(config, path):
            yield f"{path} was removed in DeepSpeed 0.19.7, and raises: {instead}."


def idle_keys(config: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for every key that has an old name, or that nothing reads."""
    for path, now in OLD_NAMES.items():
        if _has(config, path):
            yield f"{path} is an old name, deprecated: write {now}."
    for path, instead in READ_NOWHERE.items():
        if _has(config, path):
            yield f"{path} does nothing, DeepSpeed 0.19.8 reads it nowhere: {instead}."


def wrong_values(config: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for every value that is of another kind than its key asks for."""
    broken = [path for path in SECTIONS if _has(config, path) and not isinstance(_get(config, path), Mapping)]
    for path in broken:
        if not (path in MAY_BE_NONE and _get(config, path) is None):
            yield f"{path} must be a dictionary with its keys, got {_get(config, path)!r}."
    for key in DS_KEYS:
        if _has(config, key.path):
            yield from _wrong(key, _get(config, key.path))
    if isinstance(config.get("optimizer"), Mapping) and not config["optimizer"].get("type"):
        yield 'optimizer has no type, so DeepSpeed makes none: add "type": "AdamW".'


def _wrong(key: ConfigKey, value: Any) -> Iterator[str]:
    path, kind = key.path, KINDS.get(key.path, type(key.default))
    if value is None and key.default is None:
        return
    if path in READ_NOWHERE:
        return
    if value == "auto":
        yield f"{path} is \"auto\", which is Accelerate's and Transformers' word: DeepSpeed itself needs {_word(kind)}."
    elif path.endswith(".device"):
        if value not in DEVICES:
            yield f"{path} must be one of {', '.join(DEVICES)}, got {value!r}."
    elif path == f"{Z}.stage":
        if not (is_whole(value) and value in range(4)):
            yield f"{path} must be 0, 1, 2 or 3, a whole number; got {value!r}."
    elif path == "optimizer.type":
        if not isinstance(value, str):
            yield f"{path} must be a text, got {value!r}."
    elif path in FREE:
        yield from _wrong_params(path, value)
    elif kind is bool:
        if not isinstance(value, bool):
            yield f"{path} must be true or false, got {value!r}."
    elif kind is int:
        rounded = int(value) if path.startswith(Z) and isinstance(value, float) and value.is_integer() else value
        least = int("batch_size" in path or "accumulation_steps" in path)  # 5e8 is a size to DeepSpeed, in ZeRO's keys
        if not is_whole(rounded):
            yield f"{path} must be a whole number, got {value!r}."
        elif rounded < least:
            yield f"{path} must be {least} or more, got {value!r}."
    elif kind is float and not (is_number(value) and value >= 0):
        yield f"{path} must be a finite number of 0 or more, got {value!r}."


def _wrong_params(path: str, params: Any) -> Iterator[str]:
    """Faults in the arguments of an optimizer or a scheduler, as far as these are numbers in every one of them."""
    if not isinstance(params, Mapping):
        yield f"{path} must be a dictionary of arguments, got {params!r}."
        return
    for name, value in params.items():
        if value == "auto":
            yield f"{path}.{name} is \"auto\", which is Accelerate's and Transformers' word: write a number."
        elif name in ("lr", "weight_decay", "eps") and not (is_number(value) and value >= 0):
            yield f"{path}.{name} must be a finite number of 0 or more, got {value!r}."


def _word(kind: type) -> str:
    words: dict[type, str] = {int: "a number", float: "a number", bool: "true or false"}
    return words.get(kind, "a value")


def _has(config: Any, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(config, Mapping) or name not in config:
            return False
        config = config[name]
    return True


def _get(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = config[name]
    return config
