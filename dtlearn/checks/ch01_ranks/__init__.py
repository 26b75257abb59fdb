"""Checks of chapter 1."""

from ..own_work import forbids

READS = [forbids("dtlearn.collectives")]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-VALUE-AVERAGED": "the mean of all ranks where that of one was asked",
    "DTL-VALUE-BUFFERS": "buffers of a model that were forgotten",
    "DTL-VALUE-COUNT": "a sum divided by the wrong number",
    "DTL-VALUE-CUT": "data that was cut to equal lengths",
    "DTL-VALUE-DP": "data-parallel groups of neighbours",
    "DTL-VALUE-DROPPED": "data that was left out",
    "DTL-VALUE-EARLY": "a rank that did not wait for all others",
    "DTL-VALUE-FROZEN": "parameters that no longer require gradients",
    "DTL-VALUE-GUESSED-NODE": "a node rank that was guessed from the rank",
    "DTL-VALUE-GUESSED-RANK": "a local rank that was guessed from the rank",
    "DTL-VALUE-LAST": "the last value in the place of all: one tensor, put into a list several times",
    "DTL-VALUE-LOCAL-COUNT": "a sum over all ranks, divided by a rank's own count",
    "DTL-VALUE-LOCAL-RANK": "the rank used where the local rank is meant",
    "DTL-VALUE-MEAN-OF-MEANS": "a mean of means over uneven parts",
    "DTL-VALUE-NO-GPU": "a GPU that the process does not have",
    "DTL-VALUE-NOT-PERSISTENT": "a buffer that is not in the state_dict",
    "DTL-VALUE-ONE-GROUP": "one group's result only",
    "DTL-VALUE-OWN-ENV": "the environment of this process where an argument was meant",
    "DTL-VALUE-ONE-RANK": "right on one rank only",
    "DTL-VALUE-REPEATED": "data that counts twice",
    "DTL-VALUE-REPLACED": "new tensors in place of those that were given",
    "DTL-VALUE-SHORT-LIST": "a result that has only the rank's own steps",
    "DTL-VALUE-SOURCE": "the state of the wrong rank",
    "DTL-VALUE-STEPS-ADDED": "the sum of counts where the largest is meant",
    "DTL-VALUE-STRIDE": "groups with the wrong stride",
    "DTL-VALUE-SUMMED": "the sum of all ranks where the state of one was asked",
    "DTL-VALUE-SWAPPED": "two results in each other's place",
    "DTL-VALUE-TP": "the size of groups taken for their number",
    "DTL-VALUE-UNCHECKED": "sizes that do not fit, and no error",
    "DTL-VALUE-UNTOLD": "a rank that waited by accident and not for a message",
    "DTL-VALUE-WHOLE": "numbers that lost what is behind the point",
    "DTL-VALUE-WORLD": "the whole job where a group was meant",
}
