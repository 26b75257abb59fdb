from functools import cache


class TooFewLinks(ValueError):
    pass


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise TooFewLinks(f"{num_stages} stages, {len(costs)} links")

    @cache
    def best(start, stages):  # the stages of the links from `start` on: what the slowest costs, and their ends
        if stages == 1:
            return sum(costs[start:]), (len(costs),)
        cuts = range(start + 1, len(costs) - stages + 2)
        rest = {cut: best(cut, stages - 1) for cut in cuts}
        return min((max(sum(costs[start:cut]), rest[cut][0]), (cut, *rest[cut][1])) for cut in cuts)

    return [0, *best(0, num_stages)[1]]
