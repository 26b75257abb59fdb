import importlib
import pkgutil
from pathlib import Path

import pytest

import dtlearn.checks
from dtlearn.checks.ch12_tensor_parallel import READS
from dtlearn.checks.own_work import OwnWork, find_forbidden, forbids, forbids_torchs

PACKAGE = Path(dtlearn.checks.__file__).parents[1]

FORBIDDEN = {"dtlearn.collectives": "it is the answer", "torch.distributed.send_object_list": "it pickles"}
FORBIDDEN["threading"] = "it is the answer"


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
        "import pkgutil\npkgutil.resolve_name('dtlearn.collectives:all_reduce')(x)",
        "from importlib import import_module as get\nget('dtlearn.collectives').all_reduce(x)",
        "import importlib\nimportlib.import_module('dtlearn').collectives.all_reduce(x)",
        "__import__('dtlearn').collectives.all_reduce(x)",
        "__import__('dtlearn.collectives', fromlist=['all_reduce']).all_reduce(x)",
        "__builtins__.__import__('dtlearn').collectives",
        "import sys\nsys.modules['dtlearn.collectives'].all_reduce(x)",
        "import dtlearn\ncourse = dtlearn\ncourse.collectives.all_reduce(x)",
        "import dtlearn\ngetattr(dtlearn, 'collectives').all_reduce(x)",
        "import dtlearn\nvars(dtlearn)['collectives'].all_reduce(x)",
        "import dtlearn\ndtlearn.__dict__['collectives'].all_reduce(x)",
        "import torch\ngetattr(torch.distributed, 'send_object_list')([x], 1)",
        "import torch\ntorch.importlib.import_module('dtlearn.collectives').all_reduce(x)",
        "import os\nos.sys.modules['dtlearn.collectives'].all_reduce(x)",
        "import queue\nqueue.threading.Thread(target=f)",
    ],
)
def test_a_forbidden_name_is_found_by_whatever_way_it_comes(source):
    found = find_forbidden(source, FORBIDDEN)
    assert found is not None and found.code == "DTL-RULE-NAME"
    assert found.text.startswith(f"line {found.line} uses ") and found.text.endswith(("it is the answer", "it pickles"))


@pytest.mark.parametrize(
    "source",
    [
        "import importlib\nimportlib.import_module('.'.join(['dtlearn', 'collectives']))",
        "import importlib\nimportlib.import_module('.collectives', 'dtlearn')",
        "from importlib import import_module as get\nget(name)",
        "import importlib as i\nget = i.import_module\nget('dtlearn')",
        "import importlib\nlist(map(importlib.import_module, names))",
        "import importlib\ngetattr(importlib, 'import_module')(name)",
        "import importlib\ngetattr(importlib, 'import_' + 'module')('torch')",
        "from pkgutil import resolve_name\nresolve_name(''.join(parts))",
        "__import__('dtlearn.' + name)",
        "import builtins\nbuiltins.__import__(name)",
        "import sys\nsys.modules['dtlearn.' + name]",
        "import dtlearn\ngetattr(dtlearn, 'collec' + 'tives')",
        "import importlib.util\nimportlib.util.find_spec(name)",
        "eval('dtlearn')",
        "exec(text)",
        "import pickle\npickle.loads(data)",
        "from dtlearn import *",
        "import pydoc\npydoc.locate('dtlearn.collectives').all_reduce(x)",
        "from pydoc import locate\nlocate('dtlearn.' + name)",
        "import torch\ntorch.importlib.import_module(name)",
        "from torch import importlib\nimportlib.import_module(name)",
        "import os\nos.sys.modules[name]",
        "import os\ngetattr(os, 'sys').modules[name]",
        "globals()['__builtins__']['__import__'](name)",
        "globals().get('__builtins__')",
        "import subprocess\nsubprocess.run(['python', '-c', 'import dtlearn.collectives'])",
        "import os\nos.popen(command)",
        "import linecache\nlinecache.getlines(path)",
        "import types\ntypes.FunctionType(code, space)()",
        "from types import FunctionType as F\nF(code, space)()",
        "type(lambda: 0)(compile(text, 'x', 'exec'), space)()",
        "import marshal\nf.__code__ = marshal.loads(data)",
        "import codeop\ncodeop.compile_command(text)",
    ],
)
def test_a_name_that_cannot_be_read_is_found(source):
    found = find_forbidden(source, FORBIDDEN)
    assert found is not None and found.code == "DTL-RULE-NAME"
    assert found.text.startswith(f"line {found.line} uses ") and "has to stand in your text" in found.text


@pytest.mark.parametrize(
    "source",
    [
        "import dtlearn\ndtlearn.phase('mine')",
        "import torch.distributed as dist\ndist.send(x, 1)",
        "def send_object_list(x):\n    return x\nsend_object_list(1)",
        "collectives = {}\ncollectives.get(1)",
        "from . import collectives",
        "text = 'dtlearn.collectives'",
        "import importlib\nimportlib.import_module('torch.distributed').send(x, 1)",
        "from pkgutil import resolve_name\nresolve_name('math:inf')",
        "__import__('math').inf",
        "import sys\nsys.modules['math'].inf\nsys.stdout",
        "import torch\ngetattr(torch, name)(vars(x)['y'])",
        "model.eval()",
        "def exec(x):\n    return x\nexec(1)",
        "import dtlearn\ngetattr(dtlearn, 'phase')('mine')",
        "import os\nimport torch\nos.environ['RANK'], os.sys.stdout, torch.sys.maxsize, torch.os.getpid()",
        "import torch\nglobals()[name] = torch.backends.opt_einsum.sys",
        "import re\nimport torch\ncode = re.compile('a')\ncode.match(torch.compile(f))",
        "import types\ntypes.SimpleNamespace(a=1), types.MappingProxyType({})",
    ],
)
def test_other_names_are_free(source):
    assert find_forbidden(source, FORBIDDEN) is None


def test_a_worked_answer_that_is_imported_is_no_answer():
    found = forbids("dtlearn.zero")("from solutions.ch10_pipeline_parallel.gpipe import gpipe")
    assert found is not None and found.code == "DTL-RULE-NAME" and "the course's own answer" in found.text


@pytest.mark.parametrize(
    "source",
    [
        "import dtlearn.train.compression as c\nc.PackedSign(8)",
        "from dtlearn.viz.gradient_compression import break_even",
        "import dtlearn\ndtlearn.bench.chapters",
    ],
)
def test_what_hands_own_answers_on_is_found_in_every_chapter(source):
    for chapter in (entry.name for entry in pkgutil.iter_modules(dtlearn.checks.__path__)):
        if chapter.startswith("ch"):
            assert any(rule(source) for rule in importlib.import_module(f"dtlearn.checks.{chapter}").READS), chapter


# What strategies share holds what these exercises are about.
ON_THE_FLOOR = {
    "ch03_data_parallel": "from dtlearn.sharing.gradient_buckets import plan_buckets",  # ch03.plan_buckets
    "ch07_mixed_precision": "from dtlearn.sharing.clipping import clip_grad_norm_",  # ch07.clip_over_ranks
    "ch08_memory": "import dtlearn.sharing.host_memory as m",  # ch08.offload
    "ch09_zero": "from dtlearn.sharing import clipping, resharding",  # ch09.global_norm, ch09.reshard
    "ch12_tensor_parallel": "from dtlearn.sharing import along_dim",  # ch12.f_and_g, ch12.split_and_reassemble
}


def refused(chapter):
    """All packages of the course that a chapter's answers may not use."""
    reads = importlib.import_module(f"dtlearn.checks.{chapter}").READS
    return {package for rule in reads if isinstance(rule, OwnWork) for package in rule.packages}


@pytest.mark.parametrize("chapter", ON_THE_FLOOR)
def test_the_floor_below_a_strategy_is_no_answer_either(chapter):
    findings = [rule(ON_THE_FLOOR[chapter]) for rule in importlib.import_module(f"dtlearn.checks.{chapter}").READS]
    assert "it is the course's own answer" in next(finding.text for finding in findings if finding)


def test_whoever_refuses_a_strategy_refuses_the_floor_that_it_stands_on():
    chapters = [entry.name for entry in pkgutil.iter_modules(dtlearn.checks.__path__) if entry.name.startswith("ch")]
    assert {"ch03_data_parallel", "ch12_tensor_parallel"} <= set(chapters)
    for chapter in chapters:
        packages = {package.partition(".")[2] for package in refused(chapter)} - {"viz", "bench"}
        files = [file for package in packages for file in (PACKAGE / package.replace(".", "/")).rglob("*.py")]
        stands_on_it = any("dtlearn.sharing" in file.read_text("utf-8") for file in files)
        reads = importlib.import_module(f"dtlearn.checks.{chapter}").READS  # ch05 refuses it with its folder in sight
        assert any(rule("import dtlearn.sharing") for rule in reads) == stands_on_it, chapter


def test_what_torch_has_of_the_answer_is_refused():
    rule = forbids_torchs("torch.distributed.fsdp", "torch.nn.parallel")
    found = rule("import torch\nmodel = torch.nn.parallel.DistributedDataParallel(model)")
    assert (found.code, found.line) == ("DTL-RULE-NAME", 2) and "it is the answer itself" in found.text
    assert rule("import torch\ntorch.nn.Linear(1, 1)") is None


@pytest.mark.parametrize(
    "source",
    [
        "from dtlearn.sharing.differentiable import Copy, Reduce",
        "from dtlearn.sharing import differentiable\ndifferentiable.reduce_from(x)",
        "import dtlearn\ndtlearn.sharing.shards.shard(x, 0)",
        "from dtlearn.tensor_parallel import copy_to_tensor_parallel_region",
    ],
)
def test_chapter_12_refuses_the_floor_as_it_does_its_package(source):
    findings = [finding for rule in READS if (finding := rule(source))]
    assert [finding.code for finding in findings] == ["DTL-RULE-NAME"]
    assert "the course's own answer" in findings[0].text
