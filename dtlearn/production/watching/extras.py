"""Packages that only watching needs, and that most machines do not have."""

from __future__ import annotations

from importlib import import_module
from typing import Any

TITLES = {"wandb": "Weights & Biases", "ray": "Ray"}


class ExtraMissing(ValueError):
    """A package of the extra `watching` is not installed; the message says how to install it."""


def load_extra(module: str) -> Any:
    """A module of Weights & Biases or of Ray, such as "wandb" or "ray.tune".

    Raises:
        ExtraMissing: the package is not there.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ExtraMissing(
            f"{TITLES[package]} is not installed for this Python: `make watching` makes .venv-watching, which has it, "
            "and `pip install 'dtlearn[watching]'` puts it into an environment of yours"
        ) from None
