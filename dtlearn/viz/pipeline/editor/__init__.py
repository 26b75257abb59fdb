"""The schedule editor. Read `draft`, then `assess`, `pages`, `form` and last `edit`, which puts them together."""

from .edit import edit_schedule

__all__ = ["edit_schedule"]
