"""Checks of chapter 2."""

from ..own_work import forbids, no_objects

READS = [forbids("dtlearn.collectives"), no_objects]  # rules on the text of every answer
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-DTYPE": "messages in a dtype with fewer digits",
    "DTL-VALUE-ALIASED": "one tensor under several names, received into again and again",
    "DTL-VALUE-BORDERS": "parts put together and cut elsewhere than at their borders",
    "DTL-VALUE-CROSSOVER": "a crossover that does not belong to the two times",
    "DTL-VALUE-HALF-RING": "one half of the ring's steps",
    "DTL-VALUE-HALF-TREE": "one half of the tree's steps",
    "DTL-VALUE-HALVES": "one half of the steps of ring and tree",
    "DTL-VALUE-LATENCY": "a latency that counts once and not in each step",
    "DTL-VALUE-LEADERS": "a sum that only the first rank of each node has",
    "DTL-VALUE-MISSING": "a summand that is missing",
    "DTL-VALUE-NO-SUM": "parts that were passed on and not added to",
    "DTL-VALUE-NODE": "a sum over one node only",
    "DTL-VALUE-NOT-IN-PLACE": "a result that is not in the caller's tensor",
    "DTL-VALUE-ONE-CHUNK": "one chunk of the result only",
    "DTL-VALUE-ONE-PIECE": "one piece of each chunk only",
    "DTL-VALUE-OVERWRITTEN": "a tensor that was received into before it was sent",
    "DTL-VALUE-OWN": "the rank's own tensor missing in its place",
    "DTL-VALUE-OWN-PART": "the rank's own part missing, or alone",
    "DTL-VALUE-PAIR": "two ranks that never exchanged a message",
    "DTL-VALUE-PIECES": "elements of a chunk taken for its pieces",
    "DTL-VALUE-PLACE": "a sum over the ranks of one place only",
    "DTL-VALUE-REPEATED": "one rank's data in the place of others'",
    "DTL-VALUE-ROUND": "a number of steps that was rounded wrongly, or not at all",
    "DTL-VALUE-SAME-PART": "the same part sent to all ranks",
    "DTL-VALUE-SECONDS": "times in another unit than seconds",
    "DTL-VALUE-SHORT": "one step too few",
    "DTL-VALUE-SOURCE": "the data or the state of the wrong rank",
    "DTL-VALUE-STEP": "a step that is missing, or not in its turn",
    "DTL-VALUE-STEPS": "another number of steps",
    "DTL-VALUE-TAIL": "the last elements left out",
    "DTL-VALUE-TWICE": "data that counts twice",
    "DTL-VALUE-UNIT": "bytes, bits and bytes per second confused",
    "DTL-VALUE-WHOLE-TENSOR": "a whole tensor where a chunk is sent",
    "DTL-VALUE-WRONG-CHUNK": "another chunk than the complete one",
    "DTL-VALUE-WRONG-PART": "a part added to the sum of another",
}
