"""What is no answer of one's own: names that an answer may not use, read from its text, and its input handed back."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dtlearn.grading import Finding, Mistake


@dataclass(frozen=True)
class OwnWork:
    """A rule on an answer's text: it uses no solution, and none of these packages with the course's own.

    Nor what imports such packages and hands their names on, see `_ABOVE`.

    Attributes:
        packages: their full names.
    """

    packages: tuple[str, ...]

    @property
    def folders(self) -> list[str]:
        """Where these packages lie: hand-ins of a class cannot see them, see `grade`."""
        return [str(Path(__file__).parents[2].joinpath(*package.split("."))) for package in self.packages]

    def __call__(self, source: str) -> Finding | None:
        why = "it is the course's own answer. Write your own here; compare with the course's in another cell"
        names = (*self.packages, "dtlearn.checks", "dtlearn.grading", "solutions")
        return find_forbidden(source, {**dict.fromkeys(_ABOVE, _WHY_ABOVE), **dict.fromkeys(names, why)})


# Hidden from hand-ins of a class they need not be: without the packages their modules cannot be imported.
_ABOVE = ("dtlearn.train", "dtlearn.bench", "dtlearn.viz")
_WHY_ABOVE = "it leads to the course's own answers. An answer needs none of it: leave it out"


def forbids(*packages: str) -> OwnWork:
    """The rule for these packages."""
    return OwnWork(packages)


def forbids_torchs(*names: str) -> Callable[[str], Finding | None]:
    """A rule on an answer's text: it uses none of these names of torch, which are the answer, nor names inside."""
    return lambda source: find_forbidden(source, dict.fromkeys(names, "it is the answer itself. Write your own here"))


def not_new(what: str, num_ranks: int, returned: str = "what is returned") -> Mistake:
    """The input is returned itself; `on_rank` must then return "x itself", where x is `what`, or "a part itself"."""
    text = f"{returned} is the {what} that was given, not a new tensor: a change of one changes the other (.clone())"
    name = "a part" if what == "part" else what
    return Mistake("DTL-VALUE-NOT-NEW", text, [f"{name} itself"] * num_ranks)


def no_objects(source: str) -> Finding | None:
    """A rule on an answer's text: it sends no pickled objects, which the record shows as plain sends."""
    why = "it pickles what it sends, with several messages; only tensors may be sent"
    return find_forbidden(source, {f"torch.distributed.{verb}_object_list": why for verb in ("send", "recv")})


def find_forbidden(source: str, forbidden: Mapping[str, str]) -> Finding | None:
    """The first use of a forbidden name, or of a way around this rule, in a text that compiles; None if there is none.

    Args:
        source: the answer's text.
        forbidden: full names, such as "dtlearn.collectives", each with the reason. So are names inside.
    """
    for line, name in sorted(_names(ast.parse(source)), key=lambda use: use[0]):
        for banned, why in forbidden.items():
            if name == banned or name.startswith(f"{banned}."):
                return Finding("DTL-RULE-NAME", f"line {line} uses {name}: {why}", line=line)
        if name in _WITH_A_TEXT or any(name == one or name.startswith(f"{one}.") for one in _UNREADABLE):
            how = " with a name that is computed or handed on" if name in _WITH_A_TEXT else ""
            text = f"line {line} uses {name.removeprefix('builtins.')}{how}: {_WHY_READABLE}"
            return Finding("DTL-RULE-NAME", text, line=line)
    return None


_IMPORTS = ("importlib.import_module", "importlib.__import__", "builtins.__import__", "pkgutil.resolve_name")
# What these lead to can be read where they are given a text, "dtlearn.collectives"; only otherwise they are found.
_WITH_A_TEXT = (*_IMPORTS, "sys.modules", "builtins.getattr")
_UNREADABLE = (
    *("importlib.util", "importlib.machinery", "runpy", "builtins.eval", "builtins.exec", "dtlearn.*"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler"),  # they import what the pickle names
    *("builtins.compile", "types.FunctionType", "types.CodeType", "marshal", "code", "codeop"),  # text becomes code
    "linecache",  # it reads the solutions' files
    *("pydoc", "subprocess", "os.system", "os.popen", "__builtins__"),  # the last as a text: globals()["__builtins__"]
)
_WHY_READABLE = "what you use has to stand in your text; import it with `import` or `from ... import`"
_WHEREVER: tuple[str, ...] = ("builtins", "importlib", "os", "pkgutil", "pydoc", "runpy", "subprocess", "sys")
_WHEREVER += ("asyncio", "concurrent", "multiprocessing", "socket", "tempfile", "threading")  # os.sys is sys
_GUARDED = ("dtlearn", "importlib", "pkgutil", "builtins", "sys")  # getattr of these with a text only


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines, and the full names that stand there: what is imported, and what is reached through an import."""
    nodes = list(ast.walk(tree))
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef)} | {n.arg for n in nodes if isinstance(n, ast.arg)}
    builtin = {"__import__", "compile", "eval", "exec", "getattr", "open", "vars"} - own
    known = {"__builtins__": "builtins"} | {name: f"builtins.{name}" for name in builtin}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = known[alias.asname or alias.name] = _inside(node.module, alias.name)
                if full not in _WITH_A_TEXT:  # it matters what it is called with
                    yield node.lineno, full
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known[node.targets[0].id] = _full(node.value, known) or known.get(node.targets[0].id, "")
    read = {id(part) for node in nodes for part in _read_with(node, known)}
    for node in nodes:
        if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store):
            yield from ((node.lineno, name) for name in _reached(node, known, id(node) in read))


def _reached(node: ast.expr, known: Mapping[str, str], is_read: bool) -> Iterator[str]:
    """The names that one expression reaches; those of its parts are not among them. `is_read`: with the whole."""
    if isinstance(node, ast.Constant) and node.value == "__builtins__":
        yield "__builtins__"
    full = "" if is_read else _full(node, known)
    if full and full not in ("builtins.getattr", "builtins.vars"):
        yield full
    if isinstance(node, ast.Call) and node.args:
        function, given = _full(node.func, known), node.args[0]
        if function.endswith(".__import__") and _text(given):
            yield _text(given)  # it is loaded, whatever is returned
        if not full and function == "builtins.getattr" and _full(given, known).partition(".")[0] in _GUARDED:
            yield function


def _full(node: ast.expr, known: Mapping[str, str]) -> str:
    """The full name of what an expression reaches through imports, as far as it can be read; otherwise ""."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner, name = _full(node.value, known), node.attr
        return owner if name == "__dict__" else _inside(owner, name)
    if isinstance(node, ast.Subscript):  # sys.modules["x"], vars(x)["y"], x.__dict__["y"]
        owner, name = _full(node.value, known), _text(node.slice)
        return name if owner == "sys.modules" else _inside(owner, name)
    if isinstance(node, ast.Call) and node.args:
        function, first = _full(node.func, known), _text(node.args[0])
        if function in _IMPORTS and first and not first.startswith("."):
            outermost = function.endswith(".__import__") and len(node.args) + len(node.keywords) == 1
            return first.partition(".")[0] if outermost else first.replace(":", ".")
        if function == "builtins.getattr" and len(node.args) > 1:
            owner, name = _full(node.args[0], known), _text(node.args[1])
            return _inside(owner, name)
        if function == "builtins.vars":
            return _full(node.args[0], known)
    return ""


def _inside(owner: str, name: str) -> str:
    """The full name of a name in a module; a module that another one imported, torch.importlib, has its own name."""
    return name if owner and name in _WHEREVER else owner and name and f"{owner}.{name}"


def _read_with(node: ast.AST, known: Mapping[str, str]) -> list[ast.expr]:
    """The part of an expression that is read together with the whole: sys.modules, of sys.modules["torch"]."""
    if isinstance(node, ast.Call | ast.Subscript) and _full(node, known):
        return [node.func if isinstance(node, ast.Call) else node.value]
    return []


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
