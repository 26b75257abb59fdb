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
    "DTL-RULE-WHOLE-HELD": "a whole weight that is still referred to where a part is enough",
    "DTL-VALUE-AVERAGED": "a mean over the ranks where none is asked",
    "DTL-VALUE-BIAS-DIVIDED": "a bias whose gradient is divided by the number of ranks",
    "DTL-VALUE-BIAS-FORGOTTEN": "a bias that is not added",
    "DTL-VALUE-BIAS-FROZEN": "a bias that gets no gradient",
    "DTL-VALUE-BIAS-ONE-RANK": "a bias that only one rank trains",
    "DTL-VALUE-BIAS-TIMES": "a bias that counts once for each rank",
    "DTL-VALUE-DEALT-OUT": "elements dealt out in turn where contiguous shards are meant",
    "DTL-VALUE-ERROR-TEXT": "an error that does not say what it is about",
    "DTL-VALUE-GROUP-IGNORED": "all ranks where those of a group are meant",
    "DTL-VALUE-IN-PLACE": "tensors of the caller that were changed",
    "DTL-VALUE-LAST-GROUP": "a group that one object took over from another",
    "DTL-VALUE-NO-GRADIENT": "an operation that lets no gradient through",
    "DTL-VALUE-NOT-CUT": "a whole tensor where a part is meant",
    "DTL-VALUE-NOT-GATHERED": "shards that did not reach the other ranks",
    "DTL-VALUE-OLD-VALUES": "values from before the shards were changed",
    "DTL-VALUE-ONE-BUFFER": "one tensor that receives what several are to receive",
    "DTL-VALUE-OTHER-DIM": "a tensor cut or joined along another dim",
    "DTL-VALUE-PARTIAL-GRADIENT": "a gradient of one rank's part where the sum over the ranks is meant",
    "DTL-VALUE-PARTIAL-SUM": "one rank's part of a sum where the sum over the ranks is meant",
    "DTL-VALUE-REDUCED-AGAIN": "a sum over ranks that have the same already",
    "DTL-VALUE-RESULT-SHARED": "a result that a later call changes",
    "DTL-VALUE-ROTATED": "parts in an order that begins with the rank's own",
    "DTL-VALUE-ROUNDED": "numbers that were rounded to 16 bits on the way",
    "DTL-VALUE-SWAPPED": "two values in each other's place",
    "DTL-VALUE-UNCHECKED": "sizes that do not fit, and no error",
    "DTL-VALUE-VIEW": "a view that keeps the memory of a larger tensor",
}
