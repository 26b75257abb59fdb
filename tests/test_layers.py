"""Imports inside `dtlearn/` go down only. The table below is the one place that says what lies above what."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FRONT = "dtlearn/__init__.py"  # what `import dtlearn` gives; only the command lies above it
LAYERS = {
    "runtime": 0,
    "models": 1,
    "collectives": 2,  # above the models, which have the one way to time
    "data_parallel": 3,
    "parameter_server": 3,
    "gradient_compression": 3,
    "communication_scheduling": 3,
    "mixed_precision": 3,
    "memory": 3,
    "zero": 3,
    "pipeline_parallel": 3,
    "tensor_parallel": 3,
    "context_parallel": 3,
    "expert_parallel": 3,
    "hybrid_parallel": 4,
    "planner": 4,
    "course": 4,
    "viz": 5,
    "grading": 5,
    "notebook": 5,
    FRONT: 6,
    "cli": 7,
    "__main__": 8,  # `python -m dtlearn`
}
# Inside a layer nobody imports a neighbour, but for these.
NEIGHBOURS = {
    ("hybrid_parallel", "planner"),
    ("grading", "viz"),
    ("notebook", "viz"),
    ("notebook", "grading"),
}
# Needs nothing of dtlearn, so that the tools can read the manifest without loading torch.
ALONE = {"course"}


def unit_of(module: str) -> str:
    """The entry of LAYERS that a dotted name below `dtlearn` belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else FRONT


def names_used(source: str, path: str) -> list[tuple[int, str]]:
    """Line and full dotted name of all that the file imports, in functions too, and of `torch.distributed` in use."""
    package = list(Path(path).parent.parts)
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            found += [(node.lineno, ".".join([*base, alias.name])) for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed":
            found.append((node.lineno, "torch.distributed"))
    return found


def violations(source: str, path: str) -> list[str]:
    """What the file at `path` (such as dtlearn/viz/style.py) imports against the rules; [] if nothing."""
    parts = Path(path).parts
    importer = FRONT if path == FRONT else Path(parts[1]).stem
    if importer not in LAYERS:
        return [f"{path}: {importer} has no layer; add it to the table in tests/test_layers.py"]
    found = []
    for line, name in names_used(source, path):
        if importer == "viz" and f"{name}.".startswith("torch.distributed."):
            found.append(f"{path}:{line}: viz draws records and never uses torch.distributed")
        if name.split(".")[0] != "dtlearn":
            continue
        imported = unit_of(name)
        if imported == importer:
            continue
        down = LAYERS[imported] < LAYERS[importer] or (importer, imported) in NEIGHBOURS
        if not down or importer in ALONE:
            found.append(
                f"{path}:{line}: {importer} (layer {LAYERS[importer]}) imports {imported} ({LAYERS[imported]})"
            )
    return found


def test_imports_go_down_only():
    files = [file for file in sorted((ROOT / "dtlearn").rglob("*.py")) if "data" not in file.parts]
    assert files
    found = [v for file in files for v in violations(file.read_text("utf-8"), file.relative_to(ROOT).as_posix())]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("dtlearn/runtime/agent/server.py", "import dtlearn.models.mlp"),
        ("dtlearn/runtime/agent/server.py", "from dtlearn import models"),
        ("dtlearn/runtime/agent/server.py", "from ..models import mlp"),
        ("dtlearn/runtime/agent/server.py", "from .. import models"),
        ("dtlearn/runtime/agent/server.py", "def late():\n    from dtlearn.viz.style import COLORS"),
        ("dtlearn/runtime/agent/server.py", "from dtlearn import world"),
        ("dtlearn/zero/stage1.py", "from dtlearn.data_parallel import bucket"),
        ("dtlearn/viz/timeline.py", "from dtlearn.notebook import show"),
        ("dtlearn/viz/timeline.py", "import torch.distributed as dist"),
        ("dtlearn/viz/timeline.py", "from torch import distributed"),
        ("dtlearn/viz/timeline.py", "from torch.distributed import get_rank"),
        ("dtlearn/viz/timeline.py", "import torch\nrank = torch.distributed.get_rank()"),
        ("dtlearn/grading/check.py", "from dtlearn.cli import main"),
        ("dtlearn/__init__.py", "from dtlearn.cli import main"),
        ("dtlearn/course.py", "from dtlearn.runtime import run_ranks"),
        ("dtlearn/utils.py", "import os"),
    ],
)
def test_a_planted_violation_is_found(path, source):
    assert len(violations(source, path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "dtlearn/runtime/agent/server.py",
            "from . import wire\nfrom .errors import RankError\nimport torch.distributed",
        ),
        ("dtlearn/zero/stage1.py", "from dtlearn.models.mlp import MLP\nfrom ..runtime import device"),
        ("dtlearn/notebook/panel.py", "from dtlearn.viz.style import COLORS\nfrom dtlearn import course"),
        ("dtlearn/viz/timeline.py", "from dtlearn.runtime.record.record import Record\nimport torch.distributions"),
        ("dtlearn/cli/jupyterlab.py", "import dtlearn\nfrom dtlearn.course import load_course"),
    ],
)
def test_what_goes_down_is_allowed(path, source):
    assert violations(source, path) == []
