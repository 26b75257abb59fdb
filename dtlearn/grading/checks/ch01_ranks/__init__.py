"""Checks of chapter 1."""

# Codes of mistakes that only these exercises know; see `report/codes.py`.
MEANINGS = {
    "DTL-VALUE-AVERAGED": "the mean of all ranks where that of one was asked",
    "DTL-VALUE-BUFFERS": "buffers of a model that were forgotten",
    "DTL-VALUE-COUNT": "a sum divided by the wrong number",
    "DTL-VALUE-CUT": "data that was cut to equal lengths",
    "DTL-VALUE-DP": "data-parallel groups of neighbours",
    "DTL-VALUE-DROPPED": "data that was left out",
    "DTL-VALUE-EARLY": "a rank that did not wait for all others",
    "DTL-VALUE-GUESSED-NODE": "a node rank that was guessed from the rank",
    "DTL-VALUE-GUESSED-RANK": "a local rank that was guessed from the rank",
    "DTL-VALUE-LOCAL-COUNT": "a sum over all ranks, divided by a rank's own count",
    "DTL-VALUE-LOCAL-RANK": "the rank used where the local rank is meant",
    "DTL-VALUE-MEAN-OF-MEANS": "a mean of means over uneven parts",
    "DTL-VALUE-NO-GPU": "a GPU that the process does not have",
    "DTL-VALUE-ONE-GROUP": "one group's result only",
    "DTL-VALUE-ONE-RANK": "right on one rank only",
    "DTL-VALUE-REPEATED": "data that counts twice",
    "DTL-VALUE-REPLACED": "new tensors in place of those that were given",
    "DTL-VALUE-SHORT-LIST": "a result that has only the rank's own steps",
    "DTL-VALUE-SOURCE": "the state of the wrong rank",
    "DTL-VALUE-SWAPPED": "two results in each other's place",
    "DTL-VALUE-TP": "the size of groups taken for their number",
    "DTL-VALUE-UNCHECKED": "sizes that do not fit, and no error",
    "DTL-VALUE-WORLD": "the whole job where a group was meant",
}
