def when_it_pays(num_ranks, nbytes, alpha, beta, **codec):
    """Each way is a straight line a + b x in x, one over the bandwidth; the coded one is below where x is ..."""
    n = num_ranks
    plain = (2 * (n - 1) * alpha, 2 * (n - 1) * (nbytes / n))
    coded = ((n - 1) * alpha + codec["encode"] + n * codec["decode"], (n - 1) * codec["payload"])
    a, b = coded[0] - plain[0], coded[1] - plain[1]
    answer = {"plain": plain[0] + plain[1] / beta, "coded": coded[0] + coded[1] / beta, "bandwidth": None}
    if b == 0:
        return {**answer, "pays": "always" if a < 0 else "never"}
    x = -a / b
    if x <= 0:
        return {**answer, "pays": "always" if b < 0 else "never"}
    return {**answer, "pays": "below" if b < 0 else "above", "bandwidth": 1 / x}
