# expect: DTL-VALUE-HALVES
# says: ring and tree are half of the right ones

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = num_ranks - 1, math.ceil(math.log2(num_ranks))
    return {
        "ring": ring_steps * alpha + ring_steps / num_ranks * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": (ring_steps - tree_steps) * alpha * beta / (tree_steps - ring_steps / num_ranks),
    }
