"""Formulae of the manifest's budgets, such as "2*(N-1)/N*n": arithmetic and nothing else."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"ceil": math.ceil, "log2": math.log2, "max": max, "min": min}


class Formula:
    """A formula in named quantities. Raises ValueError if it is anything but arithmetic.

    N is the world size, n the payload in bytes; + - * / // **, ceil, log2, max and min.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"{text!r} is no formula: {error.msg}") from error

    def __call__(self, **names: float) -> float:
        try:
            return float(self._value(self._tree, names))
        except ArithmeticError as error:
            raise ValueError(f"{self.text!r} has no value with {names}: {error}") from error

    def _value(self, node: ast.AST, names: dict[str, float]) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._value(left, names), self._value(right, names))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._value(operand, names))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(self._value(a, names) for a in args))
        raise ValueError(f"{self.text!r}: {ast.unparse(node)!r} is not allowed; quantities: {', '.join(names)}")
