"""Layer 5: DeepSpeed and the other libraries, on the course's GPT, in one loop, with every call recorded.

In this order: `description`, a run as data; `page_engines`, what four libraries build from it; `engines/`, all of them
with all that the page leaves out; `configuration/`, a ds_config key by key and its checker; `comparing/`, runs on
recorded ranks, stored results, and where libraries send what nobody expects; `around/`, launchers, checkpoints,
memory, traps; `hello_deepspeed/`, a script to take home. `environment` finds the Python that has
DeepSpeed, `quiet_deepspeed` imports it without a compiler.

The names are loaded when they are first asked for: `dtlearn doctor` looks at the traps without loading torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .around.checkpoints import CheckpointTrip, checkpoint_trip
    from .around.estimates import Estimate, compare_estimates
    from .around.launchers import LAUNCHERS, RecordedLaunch, launch
    from .comparing.findings import FINDINGS, LibraryFinding, volume
    from .comparing.requests import MAIN, REQUESTS
    from .comparing.result import LibraryResult
    from .comparing.run_library import run_libraries, run_library
    from .comparing.stored import StoredResults, load_stored_results
    from .comparing.table import call_rows, comparison_rows, lines_of, sent_by_kind
    from .comparing.traffic import Traffic
    from .configuration.check import batch_numbers, check_ds_config
    from .configuration.from_description import ds_config_of
    from .configuration.keys import DS_KEYS, ConfigKey
    from .description import RunDescription
    from .engines.base import Engine, batches, build_model
    from .engines.registry import ENGINES, EngineKind, make_engine
    from .environment import LibraryMissing, libraries_python
    from .quiet_deepspeed import has_deepspeed

_HOME = {
    "CheckpointTrip": "around.checkpoints",
    "ConfigKey": "configuration.keys",
    "DS_KEYS": "configuration.keys",
    "ENGINES": "engines.registry",
    "Engine": "engines.base",
    "EngineKind": "engines.registry",
    "Estimate": "around.estimates",
    "FINDINGS": "comparing.findings",
    "LibraryFinding": "comparing.findings",
    "LAUNCHERS": "around.launchers",
    "RecordedLaunch": "around.launchers",
    "LibraryMissing": "environment",
    "LibraryResult": "comparing.result",
    "MAIN": "comparing.requests",
    "REQUESTS": "comparing.requests",
    "RunDescription": "description",
    "StoredResults": "comparing.stored",
    "Traffic": "comparing.traffic",
    "batch_numbers": "configuration.check",
    "batches": "engines.base",
    "build_model": "engines.base",
    "call_rows": "comparing.table",
    "check_ds_config": "configuration.check",
    "checkpoint_trip": "around.checkpoints",
    "compare_estimates": "around.estimates",
    "comparison_rows": "comparing.table",
    "ds_config_of": "configuration.from_description",
    "has_deepspeed": "quiet_deepspeed",
    "launch": "around.launchers",
    "libraries_python": "environment",
    "lines_of": "comparing.table",
    "load_stored_results": "comparing.stored",
    "make_engine": "engines.registry",
    "run_libraries": "comparing.run_library",
    "run_library": "comparing.run_library",
    "sent_by_kind": "comparing.table",
    "volume": "comparing.findings",
}
__all__ = [
    "DS_KEYS",
    "ENGINES",
    "FINDINGS",
    "LAUNCHERS",
    "MAIN",
    "REQUESTS",
    "CheckpointTrip",
    "ConfigKey",
    "Engine",
    "EngineKind",
    "Estimate",
    "LibraryFinding",
    "LibraryMissing",
    "LibraryResult",
    "RecordedLaunch",
    "RunDescription",
    "StoredResults",
    "Traffic",
    "batch_numbers",
    "batches",
    "build_model",
    "call_rows",
    "check_ds_config",
    "checkpoint_trip",
    "compare_estimates",
    "comparison_rows",
    "ds_config_of",
    "has_deepspeed",
    "launch",
    "libraries_python",
    "lines_of",
    "load_stored_results",
    "make_engine",
    "run_libraries",
    "run_library",
    "sent_by_kind",
    "volume",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
