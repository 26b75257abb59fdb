"""Cells on ranks make their tensors on the rank's device: on a machine with GPUs NCCL takes no others."""

import ast
import re
from pathlib import Path

import jupytext
import pytest

SOURCES = sorted((Path(__file__).parents[1] / "notebooks" / "src").glob("ch*.py"))
MAKES = {
    "arange",
    "empty",
    "eye",
    "full",
    "linspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "tensor",
    "zeros",
}
MODELS = {"MLP", "GPT", "Linear", "BatchNorm1d", "SyncBatchNorm", "TwoHeads"}


def not_on_the_device(cell: str) -> list[str]:
    """What a cell makes, of tensors and models, without `device=` and without `.to(device)` at once."""
    tree = ast.parse(cell)
    moved = {id(node.func.value) for node in ast.walk(tree) if is_to_device(node)}
    inside = {id(call) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for call in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in moved | inside:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            owner = node.func.value.id if isinstance(node.func, ast.Attribute) and is_name(node.func.value) else ""
            makes = (owner == "torch" and name in MAKES) or name in MODELS
            if makes and not any(k.arg == "device" for k in node.keywords) and not wrapped(node, tree, moved):
                found.append(ast.unparse(node))
    return found


def is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def is_to_device(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ".to(device" in ast.unparse(node)


def wrapped(call: ast.Call, tree: ast.AST, moved: set[int]) -> bool:
    """Whether it is an argument of something that is moved as a whole: `Sequential(Linear(2, 2)).to(device)`."""
    return any(id(node) in moved and any(one is call for one in ast.walk(node)) for node in ast.walk(tree))


def code_cells(path: Path) -> list[str]:
    return [c.source for c in jupytext.read(path).cells if c.cell_type == "code"]


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_what_cells_on_ranks_make_is_on_their_device(path):
    on_ranks = [cell for cell in code_cells(path) if cell.startswith("%%ranks")]
    assert on_ranks
    if any("torch.set_default_device(device)" in cell for cell in on_ranks):
        return
    on_device = [cell.partition("\n")[2] for cell in on_ranks if 'backend="gloo"' not in cell]
    assert [what for cell in on_device for what in not_on_the_device(cell)] == []


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_a_chapter_runs_on_the_machines_devices_and_a_cell_on_the_cpu_says_why(path):
    cells = code_cells(path)
    worlds = [world for cell in cells for world in re.findall(r"dtlearn\.world\(.*\)", cell)]
    assert worlds and not any("device" in world for world in worlds)
    on_cpu = [cell for cell in cells if re.search(r"device=\"cpu\"|backend=\"gloo\"", cell)]
    # One that repeats an emulated link, of which another cell said why, needs no second reason.
    silent = [cell for cell in on_cpu if not re.search("CPU|processor", cell) and "link=" not in cell]
    assert silent == []


def test_the_rule_sees_what_it_is_about():
    assert not_on_the_device("x = torch.ones(2)\nmodel = MLP()") == ["torch.ones(2)", "MLP()"]
    assert not_on_the_device("model = GPT(CONFIG).to(device, torch.bfloat16)") == []
    assert not_on_the_device("x = torch.ones(2, device=device) + torch.randn(3).to(device)") == []
    assert not_on_the_device("m = nn.Sequential(nn.Linear(2, 2)).to(device)") == []
    assert not_on_the_device("class A:\n    def __init__(self):\n        self.a = MLP()") == []
