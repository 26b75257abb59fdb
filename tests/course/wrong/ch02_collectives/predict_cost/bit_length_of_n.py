# expect: DTL-MISTAKE
# says: bit_length() counts one more for a power of two


def predict_cost(num_ranks, nbytes, alpha, beta):
    ring_steps, tree_steps = 2 * (num_ranks - 1), 2 * num_ranks.bit_length()
    share = ring_steps / num_ranks
    return {
        "ring": ring_steps * alpha + share * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": max(0.0, (ring_steps - tree_steps) * alpha * beta / (tree_steps - share)),
    }
