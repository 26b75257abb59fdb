"""Checks of chapter 3."""

from ..own_work import forbids

READS = [forbids("dtlearn.data_parallel", "dtlearn.sharing")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-LATE-BINDING": "hooks that all read the last value of a loop's variable",
    "DTL-VALUE-CLIP": "gradients clipped at the wrong time, or not at all",
    "DTL-VALUE-LAST-ONLY": "gradients that were emptied between micro-batches",
    "DTL-VALUE-NO-GRAPH": "a loss that backward cannot start from",
    "DTL-VALUE-NO-SYNC": "gradients that were never averaged over the ranks",
    "DTL-VALUE-OLD": "gradients of an earlier step",
    "DTL-VALUE-ORDER": "the right things in another order",
    "DTL-VALUE-PARAMETERS": "parameters changed where gradients were meant",
    "DTL-VALUE-ROUNDED": "numbers that were rounded to 16 bits on the way",
    "DTL-VALUE-STOP": "training that ends by another rule",
    "DTL-VALUE-SUM": "a sum where a mean is meant",
    "DTL-VALUE-ZEROED": "gradients of zero where there should be none",
}
