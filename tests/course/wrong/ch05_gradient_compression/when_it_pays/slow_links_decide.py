# expect: DTL-RAISED
# says: fewer bytes, and nothing else that takes time


def when_it_pays(num_ranks, nbytes, alpha, beta, *, payload, encode, decode):
    n = num_ranks
    compute = encode + n * decode
    answer = {"plain": 2 * (n - 1) * (alpha + nbytes / n / beta), "coded": (n - 1) * (alpha + payload / beta) + compute}
    saved, seconds = (n - 1) * (2 * nbytes / n - payload), compute - (n - 1) * alpha
    crossing = saved / seconds
    if crossing > 0:
        return {**answer, "pays": "below" if saved > 0 else "above", "bandwidth": crossing}
    return {**answer, "pays": "always" if seconds < 0 else "never", "bandwidth": None}
