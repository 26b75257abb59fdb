"""No statement is missed, wherever it stands."""

import ast

from tests.statements import statements

NESTED = """
if a: import in_if
elif b: import in_elif
else: import in_else
for a in b: import in_for
else: import after_for
while a: import in_while
with a: import in_with
try: import in_try
except a: import in_except
else: import after_try
finally: import in_finally
try: pass
except* a: import in_except_star
match a:
    case 1: import in_case
class A:
    def method(self):
        async def inner():
            async for a in b: import in_async_for
            async with a: import in_async_with
"""


def test_they_are_those_that_walk_finds():
    found = [ast.dump(node) for node in statements(NESTED) if isinstance(node, ast.stmt)]
    every = [ast.dump(node) for node in ast.walk(ast.parse(NESTED)) if isinstance(node, ast.stmt)]
    assert sorted(found) == sorted(every)
    assert sum(line.startswith("Import(") for line in found) == NESTED.count("import")
    assert isinstance(statements(NESTED)[0], ast.Module)
