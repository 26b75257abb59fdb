# expect: DTL-MISTAKE
# says: payloads are added up on the way


def when_it_pays(num_ranks, nbytes, alpha, beta, *, payload, encode, decode):
    def ring(size):
        return 2 * (num_ranks - 1) * (alpha + size / num_ranks / beta)

    saved = 2 * (num_ranks - 1) / num_ranks * (nbytes - payload)
    pays = "below" if encode + decode > 0 else "always"
    bandwidth = saved / (encode + decode) if encode + decode > 0 else None
    return {"plain": ring(nbytes), "coded": ring(payload) + encode + decode, "pays": pays, "bandwidth": bandwidth}
