"""What is no answer of one's own: names that an answer may not use, read from its text, and its input handed back."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from dtlearn.grading import Finding, Mistake


def forbids(*packages: str) -> Callable[[str], Finding | None]:
    """A rule on an answer's text: it does not use these packages, where the course has its own answers."""
    why = "it is the course's own answer. Write your own here; compare with the course's in another cell"
    return lambda source: find_forbidden(source, dict.fromkeys((*packages, "dtlearn.checks", "dtlearn.grading"), why))


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
    """The first use of a forbidden name in a text that compiles; None if there is none.

    Args:
        source: the answer's text.
        forbidden: full names, such as "dtlearn.collectives", each with the reason. So are names inside.
    """
    for line, name in sorted(_names(ast.parse(source)), key=lambda use: use[0]):
        for banned, why in forbidden.items():
            if name == banned or name.startswith(f"{banned}."):
                return Finding("DTL-RULE-NAME", f"line {line} uses {name}: {why}", line=line)
    return None


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines, and the full names that stand there: what is imported, and what is reached through an import."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = _path(node)
            if first in known:
                yield node.lineno, ".".join([known[first], *rest])
        elif isinstance(node, ast.Call) and _path(node.func)[-1] in ("import_module", "__import__"):
            yield node.lineno, str(getattr(node.args[0], "value", "")) if node.args else ""


def _path(node: ast.expr) -> list[str]:
    """["dist", "all_reduce"] for dist.all_reduce; [""] first if it begins with no name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *reversed(names)]
