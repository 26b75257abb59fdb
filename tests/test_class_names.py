"""One name, one class: no two public classes of `dtlearn/` share a name, but for those below."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "dtlearn"

CHAPTERS = "a word of both chapters; a chapter is read alone, and strategies never import each other"
SUBJECTS = "a strategy's or the platform's, and a word of another subject elsewhere; no file imports both"
PICTURE = "a part of viz's own picture, or what it draws there; no file imports both"
# Name: the packages that have such a class, in order, and why that is well.
SHARED = {
    "BlockSizes": ("memory tensor_parallel", CHAPTERS),
    "Bucket": ("data_parallel zero", CHAPTERS),
    "Call": ("runtime viz", PICTURE),
    "Case": ("grading tensor_parallel", SUBJECTS),
    "Convention": ("memory zero", CHAPTERS),
    "Curve": ("mixed_precision viz", PICTURE),
    "Exchange": ("pipeline_parallel viz", PICTURE),
    "Finding": ("grading pipeline_parallel", SUBJECTS),
    "Fit": ("collectives memory", "times fitted by a line; a model that fits into memory"),
    "Frame": ("runtime tensor_parallel", SUBJECTS),
    "Layout": ("runtime viz", PICTURE),
    "Level": ("collectives runtime", "the links of one kind: of any cluster; of an emulated link"),
    "Message": ("pipeline_parallel viz", PICTURE),
    "Operation": ("runtime viz", PICTURE),
    "Plan": ("collectives grading", SUBJECTS),
    "Progress": ("pipeline_parallel train", CHAPTERS),
    "Span": ("pipeline_parallel runtime", SUBJECTS),
    "Term": ("memory tensor_parallel", CHAPTERS),
    "Timeline": ("data_parallel pipeline_parallel", CHAPTERS),
    "UnitEvent": ("viz zero", PICTURE),
    "Way": ("bench tensor_parallel", "a way to train, or to a product"),
    "Workload": ("data_parallel memory mixed_precision", CHAPTERS),
}


def shared_names(files: Iterable[Path], package: Path) -> dict[str, str]:
    """{name of more than one public class at the top of a file: the packages of these, once for each}.

    `checks/` is left out: each file there is one exercise's, and loaded by its path.
    """
    owners = defaultdict(list)
    for file in sorted(files):
        part = file.relative_to(package).parts[0]
        if part != "checks":
            for node in ast.parse(file.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    owners[node.name].append(part)
    return {name: " ".join(parts) for name, parts in owners.items() if len(parts) > 1}


def test_no_two_classes_share_a_name_unawares():
    known = {name: packages for name, (packages, _) in SHARED.items()}
    assert shared_names(PACKAGE.rglob("*.py"), PACKAGE) == known, "find another name, or say in SHARED why it is well"


def test_a_second_class_of_a_name_is_found(tmp_path):
    for path, source in {
        "runtime/a.py": "class Run: pass\nclass _Own: pass\n",
        "runtime/b.py": "class Run: pass\nclass _Own: pass\nclass Other: pass\n",
        "viz/c.py": "class Run: pass\n",
        "checks/d.py": "class Other: pass\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(source)
    assert shared_names(tmp_path.rglob("*.py"), tmp_path) == {"Run": "runtime runtime viz"}
