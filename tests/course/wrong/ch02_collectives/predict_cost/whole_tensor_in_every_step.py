# expect: DTL-VALUE-WHOLE-TENSOR
# says: each step of the ring sends the whole tensor here

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = 2 * (num_ranks - 1), 2 * math.ceil(math.log2(num_ranks))
    share = ring_steps
    return {
        "ring": ring_steps * alpha + share * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": 0.0,
    }
