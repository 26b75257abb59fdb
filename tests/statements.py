"""The statements of a source file: what a test of imports or of docstrings looks at."""

import ast


def statements(source: str) -> list[ast.AST]:
    """The module and all its statements, at any depth. Expressions, most of a tree, are not looked into."""
    found: list[ast.AST] = [ast.parse(source)]
    for node in found:  # grows while it is read
        for field in vars(node).values():
            if isinstance(field, list):
                found += [part for part in field if isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case)]
    return found
