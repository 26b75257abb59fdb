"""Checks of chapter 8."""

from ..own_work import forbids

READS = [forbids("dtlearn.memory", "dtlearn.sharing")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {"DTL-VALUE-NOT-BYTES": "another unit than bytes"}
