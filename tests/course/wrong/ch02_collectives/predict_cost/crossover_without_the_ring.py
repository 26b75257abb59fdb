# expect: DTL-VALUE-CROSSOVER
# says: the crossover leaves out that the ring takes time

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = 2 * (num_ranks - 1), 2 * math.ceil(math.log2(num_ranks))
    share = ring_steps / num_ranks
    return {
        "ring": ring_steps * alpha + share * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": (ring_steps - tree_steps) * alpha * beta,
    }
