"""Programs that take the package's own answer, by every door we know; what is read of a text refuses them.

The check of the class has that rule for the texts that say `# own answer`, and for no others: the rule also refuses
`subprocess` and `exec`, which other hand-ins attack with.
"""

import textwrap

from .hand_in import HandIn, text

RULE = "own answer"  # in the texts that are read
_SEEN = ("DTL-RULE-NAME",)


def _door(name: str, does: str, lines: str, *more: str) -> HandIn:
    """Gets a function `all_reduce(t)` by these lines, and answers with it."""
    inside = textwrap.indent(f"{lines}\nt = x.clone()\nall_reduce(t)\nreturn t / dist.get_world_size()\n", "    ")
    source = f"import torch.distributed as dist\n# {RULE}\n\ndef average(x):\n{inside}"
    return text(f"own-{name}", f"takes the package's own answer: {does}", source, *(more or _SEEN))


OWN_ANSWER: list[HandIn] = [
    _door("none", "no, torch's: this is allowed", "all_reduce = dist.all_reduce", ""),
    _door("import", "import", "import dtlearn.collectives\nall_reduce = dtlearn.collectives.all_reduce"),
    _door("from", "from ... import", "from dtlearn.collectives import all_reduce"),
    _door("part", "a part of it", "from dtlearn.collectives.primitives import all_reduce"),
    _door("star", "everything of it", "import dtlearn as d\nall_reduce = d.collectives.all_reduce"),
    _door(
        "importlib",
        "importlib",
        "import importlib\nall_reduce = importlib.import_module('dtlearn.collectives').all_reduce",
    ),
    _door(
        "computed",
        "importlib, with a name that is computed",
        "import importlib\nall_reduce = importlib.import_module('dtlearn.' + 'snoitcelloc'[::-1] + 's').all_reduce",
    ),
    _door("dunder", "__import__", "all_reduce = __import__('dtlearn.collectives').collectives.all_reduce"),
    _door("modules", "sys.modules", "import sys\nall_reduce = sys.modules['dtlearn.collectives'].all_reduce"),
    _door(
        "modules-all",
        "a search of sys.modules",
        "import sys\nall_reduce = next(m for n, m in sys.modules.items() if n.endswith('ectives')).all_reduce",
    ),
    _door("pkgutil", "pkgutil", "import pkgutil\nall_reduce = pkgutil.resolve_name('dtlearn.collectives:all_reduce')"),
    _door(
        "getattr",
        "getattr of getattr",
        "import dtlearn\nall_reduce = getattr(getattr(dtlearn, 'col' + 'lectives'), 'all_reduce')",
    ),
    _door("vars", "the names of the package", "import dtlearn\nall_reduce = vars(dtlearn)['collectives'].all_reduce"),
    _door(
        "exec",
        "exec of a text",
        "names = {}\nexec('from dtlearn.coll' + 'ectives import *', names)\nall_reduce = names['all_reduce']",
    ),
    _door(
        "eval", "eval of a text", "all_reduce = eval('__imp' + 'ort__(\"dtlearn.collectives\")').collectives.all_reduce"
    ),
    _door(
        "file",
        "its file, and exec",
        "import dtlearn.runtime\npath = dtlearn.runtime.__file__.replace('runtime', 'collectives')\n"
        "names = {}\nexec(open(path).read(), names)\nall_reduce = names['all_reduce']",
    ),
    _door(
        "subprocess",
        "another process",
        "import subprocess\nsubprocess.run(['python', '-c', 'import dtlearn.collectives'])\nall_reduce = print",
    ),
    _door(
        "pickle",
        "a pickle that names it",
        "import pickle\nall_reduce = pickle.loads(b'cdtlearn.collectives\\nall_reduce\\n.')",
    ),
    _door("runpy", "runpy", "import runpy\nall_reduce = runpy.run_module('dtlearn.collectives')['all_reduce']"),
    _door(
        "builtins",
        "builtins",
        "import builtins\nall_reduce = builtins.__import__('dtlearn.collectives').collectives.all_reduce",
    ),
    # A limit that the instructor's guide states: an import that is hidden from a reading of the text.
    _door(
        "hidden",
        "a class of Python's own that imports",
        "kinds = {c.__name__: c for c in object.__subclasses__()}\n"
        "names = kinds['_ModuleLock'].__init__.__globals__\n"
        "all_reduce = names['_gcd_import']('dtlearn.collectives').all_reduce",
        *_SEEN,
        "",
    ),
]
