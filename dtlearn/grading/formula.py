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


def evaluate(text: str, **names: float) -> float:
    """The value of a formula in named quantities. Raises ValueError if it is anything but arithmetic, or has no value.

    N is the world size, n the payload in bytes; + - * / // **, ceil, log2, max and min.
    """

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(operand))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*map(value, args))
        raise ValueError(f"{text!r}: {ast.unparse(node)!r} is not allowed; quantities: {', '.join(names)}")

    try:
        return float(value(ast.parse(text, mode="eval").body))
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no formula: {error.msg}") from error
    except ArithmeticError as error:
        raise ValueError(f"{text!r} has no value with {names}: {error}") from error
