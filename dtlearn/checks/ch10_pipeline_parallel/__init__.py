"""Checks of chapter 10."""

from ..own_work import find_forbidden, forbids

_WHY_OWN = "it is the answer itself. Write your own here"
# Before what an exercise knows of a run that raised: it is not what the exception says, and may not be its cause.
MAY_HELP = "this stopped the run. It may help: "
# Rules on the text of every answer.
READS = [
    forbids("dtlearn.pipeline_parallel"),
    lambda source: find_forbidden(source, {"torch.distributed.pipelining": _WHY_OWN}),
]
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-BOUNDARIES": "boundaries that do not cut a model into its stages",
    "DTL-VALUE-ENDS-IGNORED": "the embedding or the head left out of a balance",
    "DTL-VALUE-EQUAL-COUNTS": "stages of equal numbers of links where equal costs are meant",
    "DTL-VALUE-FILLED-UP": "stages filled one after the other up to a limit, which misses better cuts",
    "DTL-VALUE-REFUSED": "an error although the sizes fit",
    "DTL-VALUE-SLOWEST-STAGE": "stages of which the slowest could be faster",
    "DTL-VALUE-UNCHECKED": "sizes that do not fit, and no error",
}
