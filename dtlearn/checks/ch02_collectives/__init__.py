"""Checks of chapter 2."""

from ..own_work import forbids, no_objects

READS = [forbids("dtlearn.collectives"), no_objects]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {"DTL-RULE-DTYPE": "messages in a dtype with fewer digits"}
