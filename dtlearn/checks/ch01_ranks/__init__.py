"""Checks of chapter 1."""

from ..own_work import forbids

READS = [forbids("dtlearn.collectives")]  # rules on the text of every answer
# Codes that not the grader gives but these exercises; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-COUNT": "a sum divided by the wrong number",
    "DTL-VALUE-EARLY": "a rank that did not wait for all others",
    "DTL-VALUE-MEAN-OF-MEANS": "a mean of means over uneven parts",
    "DTL-VALUE-ONE-RANK": "right on one rank only",
    "DTL-VALUE-UNTOLD": "a rank that waited by accident and not for a message",
}
