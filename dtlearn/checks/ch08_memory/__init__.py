"""Checks of chapter 8."""

from ..own_work import forbids

READS = [forbids("dtlearn.memory", "dtlearn.sharing")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-MEMORY-GRAPH": "a graph of autograd that is kept from step to step",
    "DTL-RULE-MEMORY-OUTSIDE": "Python objects or NumPy arrays that are kept from step to step",
    "DTL-RULE-MEMORY-VIEW": "a view that keeps the memory of a whole tensor",
    "DTL-RULE-MEMORY-WORK": "works of asynchronous calls kept with their tensors",
    "DTL-RULE-NOT-FREED": "memory that is held after backward",
    "DTL-VALUE-ELEMENTS": "elements or bits in place of bytes",
    "DTL-VALUE-FIRST-GROUP": "the first parameter group taken for all",
    "DTL-VALUE-HALF": "one 16-bit format that is not taken for one",
    "DTL-VALUE-MASK": "masks of dropout counted otherwise",
    "DTL-VALUE-NO-GRADIENTS": "parameters without gradients",
    "DTL-VALUE-NOT-BYTES": "another unit than bytes",
    "DTL-VALUE-SAMPLE-ROWS": "other samples of the outputs",
    "DTL-VALUE-SMOOTHED": "another moving average",
    "DTL-VALUE-TIED-TWICE": "tied parameters counted twice",
    "DTL-VALUE-TIGHT": "a choice of exactly the budget taken for too large",
}
