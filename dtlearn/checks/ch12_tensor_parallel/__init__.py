"""Checks of chapter 12."""

from ..own_work import find_forbidden, forbids

_WHY_OWN = "it is the answer itself. Write your own here"
# torch's own tensor parallelism, and collectives with a backward pass, which no answer may use.
_TORCHS = dict.fromkeys(
    (
        "torch.distributed.tensor",
        "torch.distributed._tensor",
        "torch.distributed.nn",
        "torch.distributed._functional_collectives",
    ),
    _WHY_OWN,
)
# Before what an exercise knows of a run that raised: it is not what the exception says, and may not be its cause.
MAY_HELP = "this stopped the run. It may help: "
# Rules on the text of every answer. The last three packages hand the first one's names on, or do the same.
READS = [
    forbids("dtlearn.tensor_parallel", "dtlearn.viz", "dtlearn.bench", "dtlearn.zero"),
    lambda source: find_forbidden(source, _TORCHS),
]
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-AVERAGED": "a mean over the ranks where none is asked",
    "DTL-VALUE-UNCHECKED": "sizes that do not fit, and no error",
}
