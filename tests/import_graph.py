"""Which files import which, and in which circles."""

import ast
from collections.abc import Iterator, Mapping

from tests.statements import statements

Graph = Mapping[str, Mapping[str, int]]  # of each file the files that it imports, with the line


def names_imported(source: str, path: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of all that the file imports, anywhere."""
    package = path.split("/")[:-1]
    for node in statements(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            yield from ((node.lineno, ".".join([*base, alias.name])) for alias in node.names)


def names_used(source: str, path: str) -> Iterator[tuple[int, str]]:
    """The same, and of `torch.distributed` in use."""
    yield from names_imported(source, path)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == "distributed" and ast.unparse(node) == "torch.distributed":
            yield node.lineno, "torch.distributed"


def graph_of(sources: Mapping[str, str]) -> Graph:
    """The imports between these files. What a name inside a module comes from is that module's file."""
    files = {path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): path for path in sources}
    graph = {path: dict[str, int]() for path in sources}
    for path, source in sources.items():
        for line, name in names_imported(source, path):
            while name and name not in files:
                name = name.rpartition(".")[0]
            if name and files[name] != path:
                graph[path].setdefault(files[name], line)
    return graph


def circles(graph: Graph) -> list[list[str]]:
    """The groups of files that all import one another, directly or through others of the group (Tarjan)."""
    number, lowest, stack, found = dict[str, int](), dict[str, int](), list[str](), list[list[str]]()

    def visit(path: str) -> None:
        number[path] = lowest[path] = len(number)
        stack.append(path)
        for other in graph[path]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[path] = min(lowest[path], lowest[other])
        if lowest[path] == number[path]:
            start = stack.index(path)
            if len(stack) > start + 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for path in graph:
        if path not in number:
            visit(path)
    return found


def way(graph: Graph, start: str, end: str) -> list[str]:
    """The shortest way from one file to another along imports."""
    ways, seen = [[start]], {start}
    for known in ways:  # grows while it is read
        if known[-1] == end:
            return known
        ways += [[*known, other] for other in graph[known[-1]] if other not in seen]
        seen.update(graph[known[-1]])
    return []


def describe(graph: Graph, circle: list[str]) -> str:
    """A circle as text: of each file, the imports by which one is soonest back in it."""
    lines = [f"a circle of {len(circle)} files:"]
    for path in circle:
        back = min((way(graph, other, path) for other in graph[path] if other in circle), key=len)
        steps = zip([path, *back], back, strict=False)
        lines.append("  " + " -> ".join([f"{file}:{graph[file][other]}" for file, other in steps] + [path]))
    return "\n".join(lines)
