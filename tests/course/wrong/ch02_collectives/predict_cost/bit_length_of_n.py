# expect: DTL-VALUE-ROUND
# says: the tree has 2 x 3 steps here; log2(4) is 2


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = 2 * (num_ranks - 1), 2 * num_ranks.bit_length()
    share = ring_steps / num_ranks
    return {
        "ring": ring_steps * alpha + share * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": max(0.0, (ring_steps - tree_steps) * alpha * beta / (tree_steps - share)),
    }
