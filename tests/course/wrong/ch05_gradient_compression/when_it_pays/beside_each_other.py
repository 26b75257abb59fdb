# expect: DTL-MISTAKE
# says: and nothing happens at the same time


def when_it_pays(num_ranks, nbytes, alpha, beta, *, payload, encode, decode):
    """As if a payload were decoded while the next one arrives."""
    n = num_ranks
    plain = 2 * (n - 1) * (alpha + nbytes / n / beta)
    coded = encode + decode + (n - 1) * max(alpha + payload / beta, decode)
    saved = (n - 1) * (2 * nbytes / n - payload)
    return {"plain": plain, "coded": coded, "pays": "below", "bandwidth": saved / (encode + n * decode)}
