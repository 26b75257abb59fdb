"""Makes the stub that a learner fills in from a worked solution.

A solution marks what the learner writes:

    def average(x, *, group=None):
        # BEGIN SOLUTION: return the mean of x over the ranks of the group
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total / dist.get_world_size(group)
        # END SOLUTION

In the stub each such region is a statement that raises NotImplementedError with the exercise's id and that text. All
else stays as it is: the docstring at the top of the file, which states the task, and imports that only the solution
used. Before it comes one line more, which says how to grade the file. In a notebook the task is a text of its own above
the exercise's cell, which has `%%exercise` in place of that first line. Text in, text out; nothing here touches a file.
"""

import ast
import re
import textwrap

_BEGIN = re.compile(r"(?P<indent> *)# BEGIN SOLUTION: (?P<what>\S.*?) *")
_END = re.compile(r" *# END SOLUTION *")
_MARKER = re.compile(r"(BEGIN|END)[ _-]*SOLUTION")
_TASK = re.compile(r"(?P<first>\A(?:#[^\n]*\n|\n)*)[rR]?(\"{3}|'{3}).*?\2[ \t]*\n*", re.DOTALL)  # the file's docstring
_WIDTH = 88  # what a notebook's cell shows of a line without scrolling sideways


def first_line(exercise: str) -> str:
    """The first line of an exercise's file, where its cell has `%%exercise`."""
    return f"# {exercise}: edit this file, then run `dtlearn grade {exercise}`."


def to_file(cell: str, exercise: str) -> str:
    """What is graded of an exercise cell: a line has the same number in both. `%%exercise` is not part of `cell`."""
    return f"{first_line(exercise)}\n{cell}" if cell.endswith("\n") else f"{first_line(exercise)}\n{cell}\n"


def to_cell(file: str, exercise: str) -> str:
    """The exercise cell of a stub, with `%%exercise` as its first line and without the task."""
    text = without_task(file).removeprefix(f"{first_line(exercise)}\n").strip("\n")
    return f"%%exercise {exercise}\n{text}"


def without_task(file: str) -> str:
    """A file without the docstring at its top, even if the rest of it is no Python yet."""
    return _TASK.sub(r"\g<first>", file, count=1)


def with_task(text: str, stub: str) -> str:
    """A text that came from a cell as the file that is kept: with the task of the stub, unless it has a docstring."""
    task = _TASK.match(stub)
    if task is None or _TASK.match(text):
        return text
    first, line, rest = text.partition("\n")
    return first + line + task[0].removeprefix(task["first"]) + rest


def stub_of(solution: str, exercise: str, file: str) -> str:
    """The stub of a solution, whose file has the name `file`.

    Raises:
        ValueError: no region, or one that is nested, unclosed, empty or badly written; no docstring; no function or
            class of the exercise's name; or a text that is no Python. Says where: file:line.
    """
    _check_solution(solution, exercise.partition(".")[2], file)
    lines: list[str] = [first_line(exercise)]
    begun: tuple[int, re.Match[str]] | None = None
    body: list[str] = []
    num_regions = 0
    for number, line in enumerate(solution.splitlines(), start=1):
        where = f"{file}:{number}"
        if begin := _BEGIN.fullmatch(line):
            if begun:
                raise ValueError(f"{where}: this region begins inside the one of line {begun[0]}; close that first")
            begun, body = (number, begin), []
        elif _END.fullmatch(line):
            if not begun:
                raise ValueError(f"{where}: END SOLUTION without a BEGIN SOLUTION before it")
            lines.append(_replacement(begun[1], body, exercise, f"{file}:{begun[0]}"))
            begun, num_regions = None, num_regions + 1
        elif _MARKER.search(line):
            raise ValueError(f"{where}: write '# BEGIN SOLUTION: <what to do>' or '# END SOLUTION', nothing else")
        elif begun:
            body.append(line)
        else:
            lines.append(line)
    if begun:
        raise ValueError(f"{file}:{begun[0]}: this region has no END SOLUTION")
    if not num_regions:
        raise ValueError(f"{file}:1: has no '# BEGIN SOLUTION: <what to do>' ... '# END SOLUTION' region")
    stub = "\n".join(lines) + "\n"
    try:
        ast.parse(stub)
    except SyntaxError as error:
        raise ValueError(f"{file}: its stub is no valid Python (line {error.lineno} of it): {error.msg}") from None
    return stub


def same_text(a: str, b: str) -> bool:
    """Whether two texts are the same but for the task, spaces at line ends and blank lines around them."""

    def plain(text: str) -> list[str]:
        return [line.rstrip() for line in without_task(text).strip("\r\n\t ").splitlines()]

    return plain(a) == plain(b)


def _check_solution(text: str, name: str, file: str) -> None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{file}:{getattr(error, 'lineno', None) or 1}: no valid Python: {error}") from None
    if not ast.get_docstring(tree):
        raise ValueError(f"{file}:1: has no docstring; it states the task to the learner")
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    if name not in defined:
        raise ValueError(f"{file}:1: defines no function or class {name!r}, which the exercise is about")


def _replacement(begin: re.Match[str], body: list[str], exercise: str, where: str) -> str:
    """The statement that stands for a region."""
    indent, what = begin["indent"], begin["what"]
    code = [line for line in body if line.strip()]
    if not [line for line in code if not line.lstrip().startswith("#")]:
        raise ValueError(f"{where}: this region holds no code")
    if any(not line.startswith(indent) for line in code):
        raise ValueError(f"{where}: a line of this region stands further left than its BEGIN SOLUTION")
    quoted = f"{exercise}: {what}".replace("\\", "\\\\").replace('"', '\\"')
    if len(line := f'{indent}raise NotImplementedError("{quoted}")') <= _WIDTH:
        return line
    room = _WIDTH - len(indent) - len('    " "')
    *parts, last = textwrap.wrap(quoted, room, break_long_words=False, break_on_hyphens=False)
    lines = [*(f'{indent}    "{part} "' for part in parts), f'{indent}    "{last}"']
    return "\n".join([f"{indent}raise NotImplementedError(", *lines, f"{indent})"])
