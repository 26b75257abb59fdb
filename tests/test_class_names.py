"""One name, one type: no two public classes and type aliases of `dtlearn/` share a name, but for those below."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "dtlearn"

CHAPTERS = "a word of both chapters; a chapter is read alone, and strategies never import each other"
SUBJECTS = "a strategy's or the platform's, and a word of another subject elsewhere; no file imports both"
PICTURE = "a part of viz's own picture, or what it draws there; no file imports both"
# Name: the packages that have such a class or alias, in order, and why that is well.
SHARED = {
    "Bucket": ("sharing zero", "gradients that are reduced in one call; parameters in one flat buffer"),
}


def type_name(node: ast.stmt) -> str:
    """The name of a class, or of a type alias (`Rows = list[Row]`, CamelCase, so no constant); else ""."""
    if isinstance(node, ast.ClassDef):
        return node.name
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    typed = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).endswith("TypeAlias")
    is_type = typed or isinstance(getattr(node, "value", None), ast.Subscript | ast.BinOp | ast.Attribute | ast.Name)
    is_alias = is_type and isinstance(target, ast.Name) and re.fullmatch("[A-Z][A-Za-z0-9]*[a-z][^_]*", target.id)
    return target.id if is_alias else ""


def shared_names(files: Iterable[Path], package: Path) -> dict[str, str]:
    """{name of more than one public type at the top of a file: the packages of these, once for each}.

    `checks/` is left out: each file there is one exercise's, and loaded by its path.
    """
    owners = defaultdict(list)
    for file in sorted(files):
        part = file.relative_to(package).parts[0]
        if part != "checks":
            for node in ast.parse(file.read_text("utf-8")).body:
                if (name := type_name(node)) and not name.startswith("_"):
                    owners[name].append(part)
    return {name: " ".join(parts) for name, parts in owners.items() if len(parts) > 1}


def test_no_two_types_share_a_name_unawares():
    known = {name: packages for name, (packages, _) in SHARED.items()}
    assert shared_names(PACKAGE.rglob("*.py"), PACKAGE) == known, "find another name, or say in SHARED why it is well"


def test_a_second_type_of_a_name_is_found(tmp_path):
    for path, source in {
        "runtime/a.py": "class Run: pass\nclass _Own: pass\nState = int | str\nStep: TypeAlias = 'Run'\nMAX = M[0]\n",
        "runtime/b.py": "class Run: pass\nclass _Own: pass\nclass Other: pass\nState = Literal['on']\nMAX = M[1]\n",
        "viz/c.py": "class Run: pass\nState = Callable[[int], str]\nStep = tuple[int, ...]\nStyle = make_style()\n",
        "viz/d.py": "Style = make_style()\nHeld = Run\n",
        "zero/e.py": "class Held: pass\n",
        "checks/f.py": "class Other: pass\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(source)
    assert shared_names(tmp_path.rglob("*.py"), tmp_path) == {
        "Run": "runtime runtime viz",
        "State": "runtime runtime viz",
        "Step": "runtime viz",
        "Held": "viz zero",
    }
