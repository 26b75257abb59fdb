"""The map of names of `dtlearn.viz`: complete, true, and free of charge."""

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import dtlearn.viz as viz

LOADED = (
    "import sys, dtlearn.viz; print([m for m in ('torch', 'matplotlib', 'dtlearn.viz.picture') if m in sys.modules])"
)


def test_importing_it_loads_nothing():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_each_name_is_what_its_module_has_even_when_all_modules_are_loaded():
    for module in pkgutil.walk_packages(viz.__path__, "dtlearn.viz."):
        importlib.import_module(module.name)
    for name in viz.__all__:
        assert not isinstance(getattr(viz, name), ModuleType)
        assert getattr(viz, name) is getattr(importlib.import_module(f"dtlearn.viz.{viz._HOME[name]}"), name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'dtlearn.viz' has no attribute 'draw_it'"):
        _ = viz.draw_it
