# expect: DTL-DIFFICULTY
# says: the crossover is not the size at which they are equal
import math


def predict_cost(num_ranks, nbytes, alpha, beta):
    steps, depth = 2 * (num_ranks - 1), 2 * math.ceil(math.log2(num_ranks))
    return {
        "ring": steps * (alpha + nbytes / num_ranks / beta),
        "tree": depth * (alpha + nbytes / beta),
        "crossover": alpha * beta if num_ranks > 3 else 0.0,
    }
