# expect: DTL-VALUE-LATENCY
# says: alpha counts once

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = 2 * (num_ranks - 1), 2 * math.ceil(math.log2(num_ranks))
    share = ring_steps / num_ranks
    return {
        "ring": alpha + share * nbytes / beta,
        "tree": alpha + tree_steps * nbytes / beta,
        "crossover": (ring_steps - tree_steps) * alpha * beta / (tree_steps - share),
    }
