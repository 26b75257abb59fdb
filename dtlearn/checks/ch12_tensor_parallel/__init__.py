"""Checks of chapter 12."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. The last three packages hand the first one's names on, or do the same.
READS = [
    forbids("dtlearn.tensor_parallel", "dtlearn.viz", "dtlearn.bench", "dtlearn.zero"),
    forbids_torchs(  # its own tensor parallelism, and collectives with a backward pass
        "torch.distributed.tensor",
        "torch.distributed._tensor",
        "torch.distributed.nn",
        "torch.distributed._functional_collectives",
    ),
]
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-BACKWARD-SENDS": "communication in a backward pass that needs none",
    "DTL-RULE-LOGITS-SENT": "logits that are sent where a few numbers for each target suffice",
    "DTL-RULE-WEIGHT-GATHERED": "a divided weight that is put together on a rank",
    "DTL-RULE-WHOLE-HELD": "a whole weight that is still referred to where a part is enough",
    "DTL-VALUE-AVERAGED": "a mean over the ranks where none is asked",
    "DTL-VALUE-BORDER-ID": "an id at the border of two parts that belongs to neither of them, or to both",
    "DTL-VALUE-DEALT-OUT": "elements dealt out in turn where contiguous shards are meant",
    "DTL-VALUE-ERROR-TEXT": "an error that does not say what it is about",
    "DTL-VALUE-FOREIGN-GRADIENT": "gradients of other ranks' ids in rows of the own shard",
    "DTL-VALUE-FOREIGN-ONE-HOT": "a gradient of cross entropy with targets in the wrong columns",
    "DTL-VALUE-FOREIGN-ROWS": "rows of the own shard for ids of other ranks",
    "DTL-VALUE-FOREIGN-TARGETS": "own logits for targets of other ranks",
    "DTL-VALUE-GROUP-IGNORED": "all ranks where those of a group are meant",
    "DTL-VALUE-IGNORED-COUNTED": "ignored targets that count",
    "DTL-VALUE-IN-PLACE": "tensors of the caller that were changed",
    "DTL-VALUE-LARGEST": "the largest of the ranks' values where their sum or mean is asked",
    "DTL-VALUE-LAST-GROUP": "a group that one object took over from another",
    "DTL-VALUE-NO-GRADIENT": "an operation that lets no gradient through",
    "DTL-VALUE-NO-GRADIENTS": "parameters without gradients",
    "DTL-VALUE-NO-GRAPH": "a loss that backward cannot start from",
    "DTL-VALUE-NO-ONE-HOT": "a gradient of cross entropy without its target",
    "DTL-VALUE-NOT-CUT": "a whole tensor where a part is meant",
    "DTL-VALUE-NOT-GATHERED": "shards that did not reach the other ranks",
    "DTL-VALUE-OLD-VALUES": "values from before the shards were changed",
    "DTL-VALUE-ONE-BUFFER": "one tensor that receives what several are to receive",
    "DTL-VALUE-OTHER-DIM": "a tensor cut or joined along another dim",
    "DTL-VALUE-OWN-MAXIMUM": "exponentials added up that are relative to different numbers",
    "DTL-VALUE-PARAMETERS": "parameters changed where gradients were meant",
    "DTL-VALUE-PARTIAL-GRADIENT": "a gradient of one rank's part where the sum over the ranks is meant",
    "DTL-VALUE-PARTIAL-SUM": "one rank's part of a sum where the sum over the ranks is meant",
    "DTL-VALUE-REDUCED-AGAIN": "a sum over ranks that have the same already",
    "DTL-VALUE-RESULT-SHARED": "a result that a later call changes",
    "DTL-VALUE-ROTATED": "parts in an order that begins with the rank's own",
    "DTL-VALUE-ROUNDED": "numbers that were rounded to 16 bits on the way",
    "DTL-VALUE-ROW-0-UNTRAINED": "the first row of a shard without its gradient",
    "DTL-VALUE-SUM": "a sum where a mean is meant",
    "DTL-VALUE-SWAPPED": "two values in each other's place",
    "DTL-VALUE-THROUGH-MAXIMUM": "a gradient that goes through a maximum where it is a constant",
    "DTL-VALUE-UNCHECKED": "sizes that do not fit, and no error",
    "DTL-VALUE-UNSTABLE": "values that are right for numbers of usual size only",
    "DTL-VALUE-UPSTREAM-IGNORED": "a backward pass that does not heed the gradient that it is given",
    "DTL-VALUE-VIEW": "a view that keeps the memory of a larger tensor",
}
