"""Checks of chapter 11."""

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. The last two import the package's schedules, validator and simulator.
READS = [
    forbids("dtlearn.pipeline_parallel", "dtlearn.sharing", "dtlearn.viz", "dtlearn.bench"),
    forbids_torchs("torch.distributed.pipelining"),
]
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-MEMORY-OUTSIDE": "Python objects or NumPy arrays that are kept from step to step",
    "DTL-RULE-NOT-FREED": "memory that is held after backward",
    "DTL-RULE-W-COMPUTES-AGAIN": "gradients of inputs, or a forward pass, computed a second time",
    "DTL-RULE-WEIGHTS-IN-I": "gradients of weights in the part that is for inputs",
    "DTL-VALUE-ACTIONS": "actions that are missing, done twice or unknown",
    "DTL-VALUE-BACKWARD-ORDER": "backward passes in another order",
    "DTL-VALUE-BACKWARD-FIRST": "a backward pass in a forward pass's place, and the other way round",
    "DTL-VALUE-BUBBLE": "more idle time than the schedule needs",
    "DTL-VALUE-CIRCLE": "other ranks in a circle of waiting",
    "DTL-VALUE-DEPENDENCY": "an action that does not wait for what it needs, or waits for more",
    "DTL-VALUE-DEADLOCK": "a schedule whose ranks wait for ever",
    "DTL-VALUE-GROUP-SIZE": "another number of micro-batches in a row through each chunk",
    "DTL-VALUE-GRAD-REPLACED": "a gradient written over what was there",
    "DTL-VALUE-IDLE": "idle time counted otherwise",
    "DTL-VALUE-IN-FLIGHT": "what another micro-batch kept",
    "DTL-VALUE-LAST-RELU": "an activation function after the last layer",
    "DTL-VALUE-LIVE": "live activations counted otherwise",
    "DTL-VALUE-MAKESPAN": "another end of the last action",
    "DTL-VALUE-MASK-PLACE": "an activation function's mask at another layer",
    "DTL-VALUE-MISPLACED-ACTIONS": "actions on another rank that are not told, or told wrongly",
    "DTL-VALUE-MISSING-ACTIONS": "missing actions that are not told, or told wrongly",
    "DTL-VALUE-NO-BIAS": "biases without gradients",
    "DTL-VALUE-NO-MASK": "an activation function left out of the backward pass",
    "DTL-VALUE-NOT-DIVISIBLE": "micro-batches that the ranks do not divide",
    "DTL-VALUE-NOT-SPLIT": "a whole backward pass where it should be split",
    "DTL-VALUE-OTHER-MICROBATCH": "another micro-batch than the one whose turn it is",
    "DTL-VALUE-OTHER-STAGE": "an action of a stage that is on another rank",
    "DTL-VALUE-PLACEMENT": "a list that does not give each stage its rank",
    "DTL-VALUE-REPEATED-ACTIONS": "repeated actions that are not told, or told wrongly",
    "DTL-VALUE-ROW-MEAN": "gradients divided by the number of rows",
    "DTL-VALUE-RUN-ANYWAY": "a schedule with faults that is played all the same",
    "DTL-VALUE-STAGE-TIMES": "the times of another stage",
    "DTL-VALUE-STUCK": "another action at which a rank waits for ever",
    "DTL-VALUE-TOO-MANY-LIVE": "more micro-batches live than a schedule allows",
    "DTL-VALUE-TRANSFER": "a transfer left out, or counted where there is none",
    "DTL-VALUE-UNKNOWN-ACTIONS": "unknown actions that are not told, or told wrongly",
    "DTL-VALUE-WARM-UP": "another number of forward passes before the first backward pass",
    "DTL-VALUE-WEIGHTS-AT-ONCE": "gradients of weights that never fill a bubble",
    "DTL-VALUE-WEIGHTS-EARLY": "gradients of weights before those that they need",
    "DTL-VALUE-WEIGHTS-LAST": "gradients of weights that all come at the end",
}
