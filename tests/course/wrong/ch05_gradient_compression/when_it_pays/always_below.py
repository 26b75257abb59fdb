# expect: DTL-DIFFICULTY
# says: never pays
# says: result['pays'] should be 'never'


def when_it_pays(num_ranks, nbytes, alpha, beta, *, payload, encode, decode):
    plain = 2 * (num_ranks - 1) * (alpha + nbytes / num_ranks / beta)
    coded = (num_ranks - 1) * (alpha + payload / beta) + encode + num_ranks * decode
    saved = (num_ranks - 1) * (2 * nbytes / num_ranks - payload)
    seconds = encode + num_ranks * decode - (num_ranks - 1) * alpha
    return {"plain": plain, "coded": coded, "pays": "below", "bandwidth": abs(saved / seconds)}
