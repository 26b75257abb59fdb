# expect: DTL-VALUE-WHOLE-TENSOR
# says: the bytes of the tree count once

import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps = 2 * (num_ranks - 1)
    tree_steps = 2 * math.ceil(math.log2(num_ranks))
    ring = ring_steps * (alpha + nbytes / num_ranks / beta)
    tree = tree_steps * alpha + nbytes / beta
    crossover = 0.0
    if num_ranks > 2:
        crossover = (ring_steps - tree_steps) * alpha * beta / abs(1 - ring_steps / num_ranks)
    return {"ring": ring, "tree": tree, "crossover": crossover}
