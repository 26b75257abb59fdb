"""Exercises in a notebook: the cell that is an answer, its verdict, help with it, the board of all.

Read `exercise` (`%%exercise`, `%%try`), `verdict_display`, `help` (the folds below a verdict), `help_magics` (`%hint`
and others), `progress`.
"""
