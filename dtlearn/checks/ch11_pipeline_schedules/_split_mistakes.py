"""What can be wrong in a backward pass of two parts: of each mistake its code, and what is said of it."""

from __future__ import annotations

MISTAKES = {
    "one place": (
        "DTL-VALUE-IN-FLIGHT",
        "there is one place for all micro-batches: I and W read what the last F and the last I kept, not their own",
    ),
    "last forward": ("DTL-VALUE-IN-FLIGHT", "I and W read the inputs that the last F kept, not those of their own k"),
    "last input gradient": (
        "DTL-VALUE-IN-FLIGHT",
        "W reads the gradients that the last I kept, not those of its own k",
    ),
    "overwritten": ("DTL-VALUE-GRAD-REPLACED", "W writes over .grad: it adds to what is there"),
    "no relu": ("DTL-VALUE-NO-MASK", "the ReLUs are left out of the backward pass: where x was 0, dx is 0"),
    "mask of x": (
        "DTL-VALUE-MASK-PLACE",
        "a ReLU's mask is taken of the stage's input, too: no ReLU stands before the first layer",
    ),
    "masks shifted": (
        "DTL-VALUE-MASK-PLACE",
        "the masks are one layer off: the input of the first layer has none, that of each other layer has one",
    ),
    "relu at the end": ("DTL-VALUE-LAST-RELU", "there is a ReLU after the last layer, too: only between layers"),
    "no bias": ("DTL-VALUE-NO-BIAS", "the biases get no gradient: it is the sum of dy over all rows"),
    "mean": ("DTL-VALUE-ROW-MEAN", "the gradients of weights are divided by the number of rows"),
}
