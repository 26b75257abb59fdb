# expect: DTL-MISTAKE
# says: the tree has log2(N) steps, those of the broadcast

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = 2 * (num_ranks - 1), math.ceil(math.log2(num_ranks))
    share = ring_steps / num_ranks
    return {
        "ring": ring_steps * alpha + share * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": (ring_steps - tree_steps) * alpha * beta / (tree_steps - share),
    }
