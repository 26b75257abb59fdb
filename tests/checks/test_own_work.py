import pytest

from dtlearn.checks.own_work import find_forbidden

FORBIDDEN = {"dtlearn.collectives": "it is the answer", "torch.distributed.send_object_list": "it pickles"}


@pytest.mark.parametrize(
    "source",
    [
        "from dtlearn.collectives import all_reduce",
        "from dtlearn.collectives.primitives import all_reduce as mine",
        "from dtlearn import collectives",
        "import dtlearn.collectives as c",
        "import dtlearn.collectives.primitives",
        "import dtlearn\ndtlearn.collectives.all_reduce(x)",
        "def f(x):\n    import importlib\n    importlib.import_module('dtlearn.collectives').all_reduce(x)",
        "import torch.distributed as dist\ndist.send_object_list([x], 1)",
        "import torch\ntorch.distributed.send_object_list([x], 1)",
        "from torch.distributed import send_object_list",
    ],
)
def test_a_forbidden_name_is_found_by_whatever_way_it_comes(source):
    found = find_forbidden(source, FORBIDDEN)
    assert found is not None and found.code == "DTL-RULE-NAME"
    assert found.text.startswith(f"line {found.line} uses ") and found.text.endswith(("it is the answer", "it pickles"))


@pytest.mark.parametrize(
    "source",
    [
        "import dtlearn\ndtlearn.phase('mine')",
        "import torch.distributed as dist\ndist.send(x, 1)",
        "def send_object_list(x):\n    return x\nsend_object_list(1)",
        "collectives = {}\ncollectives.get(1)",
        "from . import collectives",
        "text = 'dtlearn.collectives'",
    ],
)
def test_other_names_are_free(source):
    assert find_forbidden(source, FORBIDDEN) is None
