"""Checks of chapter 10."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. The last two packages hand the first one's names on.
READS = [
    forbids("dtlearn.pipeline_parallel", "dtlearn.sharing", "dtlearn.viz", "dtlearn.bench"),
    forbids_torchs("torch.distributed.pipelining"),
]
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-ONE-LIVE": "several micro-batches live where one is enough",
    "DTL-RULE-PASSES": "more or fewer forward passes than micro-batches",
    "DTL-RULE-STAGE-CALLS": "a stage called more or less than once for each batch",
    "DTL-VALUE-ACTION-MISSING": "an action that no rank does",
    "DTL-VALUE-ACTION-TWICE": "an action that is done twice",
    "DTL-VALUE-ADDED-UP": "gradients added up over steps",
    "DTL-VALUE-AVERAGED": "a mean over the ranks where none is asked",
    "DTL-VALUE-BACKWARD-EARLY": "a backward pass before all forward passes are done",
    "DTL-VALUE-BEFORE-FORWARD": "a backward pass before its forward pass",
    "DTL-VALUE-BOUNDARIES": "boundaries that do not cut a model into its stages",
    "DTL-VALUE-COPIES-ALONE": "copies of one weight that keep their own gradients",
    "DTL-VALUE-COPIES-PART": "copies of one weight whose gradients differ",
    "DTL-VALUE-COPY-FORGOTTEN": "a copy of a weight that was left out",
    "DTL-VALUE-COPY-TWICE": "a copy of a weight that counts several times",
    "DTL-VALUE-ENDS-IGNORED": "the embedding or the head left out of a balance",
    "DTL-VALUE-EQUAL-COUNTS": "stages of equal numbers of links where equal costs are meant",
    "DTL-VALUE-FILLED-UP": "stages filled one after the other up to a limit, which misses better cuts",
    "DTL-VALUE-FIRST-UNTRAINED": "a first stage that does not learn",
    "DTL-VALUE-GRADIENT-OF-ONES": "the gradient of a sum of outputs in place of that of the loss",
    "DTL-VALUE-KEPT-NONE": "a gradient that is missing on the ranks that did not use the parameter",
    "DTL-VALUE-LAST-ONLY": "gradients that were emptied between micro-batches",
    "DTL-VALUE-LAST-UNTRAINED": "a last stage that does not learn",
    "DTL-VALUE-LAST-WHOLE": "a last micro-batch that weighs more than the others",
    "DTL-VALUE-LATE-FORWARD": "a backward pass where a forward pass goes first",
    "DTL-VALUE-LOSS-BY-ROWS": "a mean loss divided or multiplied by rows once too often or too rarely",
    "DTL-VALUE-LOSS-NOT-SCALED": "micro-batches whose losses are added up as they are",
    "DTL-VALUE-LOSSES": "losses that are not returned, or returned otherwise",
    "DTL-VALUE-MESSAGE": "another message than the one that an action needs",
    "DTL-VALUE-MICROBATCH-ORDER": "micro-batches in another order",
    "DTL-VALUE-NO-MICROBATCH": "an action of a micro-batch that does not exist",
    "DTL-VALUE-OLD-GRADIENTS": "gradients from before that are lost or scaled",
    "DTL-VALUE-ONE-STEP": "one step of the optimizer for several batches",
    "DTL-VALUE-OPERATION": "an operation that the schedule does not have",
    "DTL-VALUE-ORDER": "the right things in another order",
    "DTL-VALUE-OTHER-STAGE": "an action of a stage that is on another rank",
    "DTL-VALUE-PARAMETERS": "parameters changed where gradients were meant",
    "DTL-VALUE-REFUSED": "an error although the sizes fit",
    "DTL-VALUE-SCALED-TWICE": "a loss that is scaled twice",
    "DTL-VALUE-SECOND-BATCH": "a second batch that is wrong after a right first one",
    "DTL-VALUE-SENT-BACK-UNSCALED": "gradients sent to the stage before without their scale",
    "DTL-VALUE-SHARED-GRADIENT": "one tensor as the gradient of several parameters",
    "DTL-VALUE-SLOWEST-STAGE": "stages of which the slowest could be faster",
    "DTL-VALUE-STEP-MISSING": "a step of the optimizer that is not made",
    "DTL-VALUE-TOO-MANY-LIVE": "more micro-batches live than a schedule allows",
    "DTL-VALUE-UNCHECKED": "sizes that do not fit, and no error",
    "DTL-VALUE-WARM-UP": "another number of forward passes before the first backward pass",
}
