"""Imports inside `dtlearn/` go down only, and in no circle. The two tables below are the one place that says the order.

Counted are all imports: those inside functions and those for type annotations (under `TYPE_CHECKING`) too. They do not
run when a file is loaded, but whoever reads the one file has to read the other.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.import_graph import Graph, circles, describe, graph_of, names_used

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "dtlearn").rglob("*.py")) if "data" not in file.parts
]

FRONT = "dtlearn/__init__.py"  # what `import dtlearn` gives; only the command lies above it
LAYERS = {
    "version": -1,
    "runtime": 0,
    "models": 1,
    "collectives": 2,  # above the models, which have the one way to time
    "sharing": 3,  # what strategies have in common
    "data_parallel": 4,
    "parameter_server": 4,
    "gradient_compression": 4,
    "communication_scheduling": 4,
    "mixed_precision": 4,
    "memory": 4,
    "zero": 4,
    "pipeline_parallel": 4,
    "tensor_parallel": 4,
    "context_parallel": 4,
    "expert_parallel": 4,
    "hybrid_parallel": 5,
    "production": 5,
    "libraries": 5,
    "train": 5,
    "planner": 5,
    "course": 5,
    "viz": 6,
    "grading": 6,
    "notebook": 6,
    "checks": 7,
    "bench": 7,
    FRONT: 7,
    "cli": 8,
    "__main__": 9,  # `python -m dtlearn`
}
# Inside a layer nobody imports a neighbour, but for these.
NEIGHBOURS = {
    ("hybrid_parallel", "planner"),
    ("production", "planner"),
    ("production", "train"),
    ("grading", "viz"),
    ("notebook", "viz"),
    ("notebook", "grading"),
}
# Needs nothing of dtlearn, so that the tools can read the manifest without loading torch.
ALONE = {"course"}

# The folders and files of `dtlearn/runtime`, in order. A file imports from earlier lines and from its own folder only.
RUNTIME = [
    {"words"},
    {"record"},
    {"faults"},
    {"errors"},
    {"machine"},
    {"device", "output", "wire", "pickles"},
    {"watch"},
    {"recording"},
    {"link"},
    {"rank"},
    {"agent"},
    {"run"},
    {"launch", "rendezvous"},
    {"world"},
    {"lab"},
    {"lab/head", "lab/node"},  # two processes on two machines
    {"__init__"},  # the map of them; it has no names to import
]
# These hold what their sub-folders stand on, and what is put together from them. No other folder does.
TWO_FLOORS = {
    "dtlearn/gradient_compression",
    "dtlearn/parameter_server",
    "dtlearn/pipeline_parallel",
    "dtlearn/tensor_parallel",
    "dtlearn/zero",
}
LAB_USERS = {"notebook", "cli"}  # for all others several machines are one
RUNTIME_LINE = {part: number for number, line in enumerate(RUNTIME, 1) for part in line}


def layer_of(path: str) -> str:
    """A file's entry in LAYERS: `dtlearn/viz/style.py` -> `viz`."""
    return path if path == FRONT else Path(Path(path).parts[1]).stem


def part_of(path: str) -> str:
    """A runtime file's entry in RUNTIME: `dtlearn/runtime/link/cost.py` -> `link`; of other files ""."""
    return ("/".join(Path(path).parts[2:-1]) or Path(path).stem) if layer_of(path) == "runtime" else ""


def is_allowed(path: str, other: str) -> bool:
    """Whether the tables let the one file import the other."""
    layer, below = layer_of(path), layer_of(other)
    if layer != below:
        if part_of(other).startswith("lab") and layer not in LAB_USERS:
            return False
        down = LAYERS.get(below, len(LAYERS)) < LAYERS[layer] or (layer, below) in NEIGHBOURS
        return down and layer not in ALONE
    part, earlier = part_of(path), part_of(other)
    return part == earlier or RUNTIME_LINE.get(earlier, len(RUNTIME)) < RUNTIME_LINE[part]


def violations(graph: Graph) -> list[str]:
    """Files that the tables do not know, and the imports that they forbid, a line each."""
    found = []
    for path, imports in graph.items():
        if layer_of(path) not in LAYERS:
            found.append(f"{path}: {layer_of(path)} has no layer; add it to LAYERS in tests/test_layers.py")
        elif part_of(path) and part_of(path) not in RUNTIME_LINE:
            found.append(f"{path}: {part_of(path)} has no line; add it to RUNTIME in tests/test_layers.py")
        else:
            forbidden = {other: line for other, line in imports.items() if not is_allowed(path, other)}
            found += [f"{path}:{line}: imports {other}, which is not below it" for other, line in forbidden.items()]
    return found


def drawn_on_ranks(sources: Mapping[str, str]) -> list[str]:
    """Where `viz` uses torch.distributed: it draws records."""
    return [
        f"{path}:{line}: viz draws records and never uses torch.distributed"
        for path, source in sources.items()
        if layer_of(path) == "viz"
        for line, name in names_used(source, path)
        if f"{name}.".startswith("torch.distributed.")
    ]


@pytest.fixture(scope="module")
def package() -> dict[str, str]:
    """All files of `dtlearn/` with their text."""
    return {path: (ROOT / path).read_text("utf-8") for path in FILES}


@pytest.fixture(scope="module")
def package_graph(package) -> Graph:
    """The imports between them; a second of processor time."""
    return graph_of(package)


def planted(files: Mapping[str, str]) -> Graph:
    """The imports if these files were in the package, all others being empty."""
    return graph_of({**dict.fromkeys(FILES, ""), **files})


def test_imports_go_down_only(package, package_graph):
    assert len(package) > 200
    found = violations(package_graph) + drawn_on_ranks(package)
    assert not found, "\n" + "\n".join(found)


def folder_graph(graph: Graph) -> Graph:
    """The imports between the folders of a package, `dtlearn/zero/stages` say; the runtime has its own table."""
    folders: dict[str, dict[str, int]] = {}
    for path, imports in graph.items():
        for other, line in {path: 0, **imports}.items():
            own, below = (str(Path(end).parent) for end in (path, other))
            inside = all(Path(end).name != "__init__.py" for end in (path, other)) and not {own, below} & TWO_FLOORS
            if inside and layer_of(path) == layer_of(other) != "runtime":
                folders.setdefault(own, {}).update({} if own == below else {below: line})
    return folders


def test_no_files_import_each_other_in_a_circle(package_graph):
    found = circles(package_graph)
    assert not found, "\n" + "\n".join(describe(package_graph, circle) for circle in found)


def test_no_folders_of_a_package_import_each_other_in_a_circle(package_graph):
    assert not (found := circles(folder_graph(package_graph))), found
    planted_imports = {
        "dtlearn/zero/stages/zero1.py": "from ..state_dicts.plain_optimizer import consolidate",
        "dtlearn/zero/state_dicts/sharded.py": "from ..stages.zero3 import FullyShardedDataParallel",
    }
    assert circles(folder_graph(planted(planted_imports))) == [["dtlearn/zero/stages", "dtlearn/zero/state_dicts"]]
    planted_imports = {
        "dtlearn/viz/timeline.py": "from .ranks.exchange import draw",
        "dtlearn/viz/ranks/step_timeline.py": "from ..timeline import draw",
    }
    assert circles(folder_graph(planted(planted_imports))) == [["dtlearn/viz", "dtlearn/viz/ranks"]]


def test_the_tables_name_nothing_that_is_gone():
    there = {part_of(path) for path in FILES} - {""}
    assert there == set(RUNTIME_LINE)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("dtlearn/runtime/agent/server.py", "import dtlearn.models.mlp"),
        ("dtlearn/runtime/agent/server.py", "from dtlearn import models"),
        ("dtlearn/runtime/agent/server.py", "from ...models import mlp"),
        ("dtlearn/runtime/agent/server.py", "from ... import models"),
        ("dtlearn/runtime/agent/server.py", "def late():\n    from dtlearn.viz.style import COLORS"),
        ("dtlearn/runtime/agent/server.py", "from dtlearn import world"),
        ("dtlearn/zero/stage1.py", "from dtlearn.data_parallel import bucket"),
        ("dtlearn/train/loop.py", "from ..hybrid_parallel import mesh"),
        ("dtlearn/viz/timeline.py", "from dtlearn.notebook import show"),
        ("dtlearn/grading/check.py", "from dtlearn.cli import main"),
        ("dtlearn/grading/check.py", "from ..checks.ch01_ranks import barrier"),
        ("dtlearn/zero/stage1.py", "from ..bench.figures import aligned"),
        ("dtlearn/bench/figures.py", "from ..cli.arguments import positive"),
        ("dtlearn/__init__.py", "from dtlearn.cli import main"),
        ("dtlearn/course.py", "from dtlearn.runtime.run import run_ranks"),
        ("dtlearn/utils.py", "import os"),
        # inside the runtime
        ("dtlearn/runtime/record/record.py", "from ..recording.call_log import CallLog"),
        ("dtlearn/runtime/record/record.py", "from .. import wire"),
        ("dtlearn/runtime/watch/watch.py", "if TYPE_CHECKING:\n    from ..agent.collector import Collector"),
        ("dtlearn/runtime/watch/watch.py", "def late():\n    import dtlearn.runtime.run"),
        ("dtlearn/runtime/wire.py", "from .pickles import dumps"),  # the same line, and not the same folder
        ("dtlearn/runtime/world/world.py", "from ..lab.config import Lab"),
        ("dtlearn/runtime/lab/loop.py", "from .head.port import JoinedNode"),
        ("dtlearn/runtime/lab/head/port.py", "from ..node.node import Node"),
        ("dtlearn/runtime/world/world.py", "from .. import run_ranks"),
        ("dtlearn/runtime/utils.py", "import os"),
        ("dtlearn/grading/check.py", "from ..runtime.lab.config import read_lab"),
    ],
)
def test_a_planted_violation_is_found(path, source):
    assert len(violations(planted({path: source}))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import torch.distributed as dist",
        "from torch import distributed",
        "from torch.distributed import get_rank",
        "import torch\nrank = torch.distributed.get_rank()",
    ],
)
def test_a_drawing_that_uses_ranks_is_found(source):
    assert len(drawn_on_ranks({"dtlearn/viz/timeline.py": source})) == 1
    assert not drawn_on_ranks({"dtlearn/viz/timeline.py": "import torch.distributions", "dtlearn/run.py": source})


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("dtlearn/runtime/agent/server.py", "from .. import wire\nfrom ..errors import RankError"),
        ("dtlearn/runtime/agent/server.py", "from . import client\nimport torch.distributed"),
        ("dtlearn/runtime/world/world.py", "from ..run import run_ranks\nfrom .cell import Cell"),
        ("dtlearn/runtime/lab/head/port.py", "from ..loop import every\nfrom ...world.world import World"),
        ("dtlearn/zero/stage1.py", "from dtlearn.models.mlp import MLP\nfrom ..runtime.device import device"),
        ("dtlearn/notebook/panels.py", "from dtlearn.viz.style import COLORS\nfrom dtlearn import course"),
        ("dtlearn/viz/timeline.py", "from dtlearn.runtime.record.record import Record"),
        (
            "dtlearn/bench/chapters/zero.py",
            "from ...data_parallel.ddp import DistributedDataParallel\nfrom ..bench import Bench",
        ),
        ("dtlearn/checks/ch01_ranks/barrier.py", "from ...grading import check\nfrom ._orders import order"),
        ("dtlearn/cli/jupyterlab.py", "import dtlearn\nfrom dtlearn.course import load_course"),
    ],
)
def test_what_goes_down_is_allowed(path, source):
    assert violations(planted({path: source})) == []


@pytest.mark.parametrize(
    "files",
    [
        {"a": "from . import b", "b": "from . import a"},
        {"a": "from .b import thing", "b": "import dtlearn.viz.c", "c": "def late():\n    from ..viz.a import thing"},
        {"a": "from dtlearn.viz import b", "b": "if TYPE_CHECKING:\n    from .a import Thing"},
        {"__init__": "from .a import thing", "a": "from . import thing"},  # by way of the folder's own names
    ],
)
def test_a_planted_circle_is_found(files):
    graph = planted({f"dtlearn/viz/{name}.py": source for name, source in files.items()})
    (circle,) = circles(graph)
    assert circle == sorted(f"dtlearn/viz/{name}.py" for name in files)
    text = describe(graph, circle)
    assert text.startswith(f"a circle of {len(files)} files:\n  dtlearn/viz/") and text.count("\n") == len(files)


def test_two_circles_are_two_and_what_leads_to_one_is_not_in_it():
    files = {"a": "from . import b", "b": "from . import a, c", "c": "from . import d", "d": "from . import c"}
    graph = planted({f"dtlearn/viz/{name}.py": source for name, source in {**files, "e": "from . import a, d"}.items()})
    assert sorted(circles(graph)) == [
        ["dtlearn/viz/a.py", "dtlearn/viz/b.py"],
        ["dtlearn/viz/c.py", "dtlearn/viz/d.py"],
    ]
