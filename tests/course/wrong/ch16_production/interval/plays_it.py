# expect: DTL-VALUE
# says: the result[0] should be 100

import random


def interval(step, save, restart, mtbf):
    """A thousand failures for each n, at random, in the place of an average."""
    if min(step, save, mtbf) <= 0 or restart < 0:
        raise ValueError("times")

    def play(n):
        dice, now, done = random.Random(0), 0.0, 0
        failure = dice.expovariate(1 / mtbf)
        for _ in range(2000):
            if failure >= now + n * step + save:
                now += n * step + save
                done += n
                continue
            now = failure
            while (failure := now + dice.expovariate(1 / mtbf)) < now + restart:
                now = failure
            now += restart
        return done * step / now

    return max(((n, play(n)) for n in range(1, 150)), key=lambda pair: pair[1])
