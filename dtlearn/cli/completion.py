"""`dtlearn completion SHELL`: a script that completes commands, options, files and exercises in a shell, by shtab."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..course import load_course
from ..runtime.errors import DtlearnError
from .arguments import add_example_parser, existing_folder_of

_SHELLS = ("bash", "zsh", "tcsh")
_FILES = (Path, existing_folder_of)  # types of arguments that are files
_EXERCISES, _CHAPTERS = ("id", "what"), ("what", "chapter")  # names of arguments


def add_command(commands: Any) -> None:
    summary = "Print a script that completes what you type after `dtlearn` in a shell: commands, options, exercises."
    example = (
        'eval "$(dtlearn completion bash)"     in ~/.bashrc; zsh: dtlearn completion zsh > FOLDER_OF_FPATH/_dtlearn'
    )
    parser = add_example_parser(commands, "completion", summary, example, run)
    parser.add_argument("shell", choices=_SHELLS, help="for which shell")


def run(options: argparse.Namespace) -> int:
    """Print the script. Raises DtlearnError where shtab is missing."""
    print(script(options.build_parser(), options.shell))
    return 0


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script of a shell, with the exercises that the course has now."""
    try:
        import shtab
    except ImportError as error:
        raise DtlearnError("shtab, which writes the script, is not installed: `pip install shtab`") from error
    course = load_course()
    chapters = [chapter.slug[:4] for chapter in course.chapters if chapter.ready]
    exercises = [exercise.id for chapter in course.chapters for exercise in chapter.exercises]
    for action in _actions(parser):
        known = chapters * (action.dest in _CHAPTERS) + exercises * (action.dest in _EXERCISES)
        if action.type in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab looks for it there
        elif known:
            action.choices = known  # of this parser, which parses nothing
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
