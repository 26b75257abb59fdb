import heapq
from collections import defaultdict


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    of = defaultdict(list)
    for i, d in enumerate(dtypes):
        of[d].insert(0, i)
    heap = []
    for d in set(dtypes):
        caps = iter([first_bucket_cap])
        room, bucket = next(caps), []
        for i in of[d]:
            bucket.append(i)
            room -= nbytes[i]
            if room <= 0:
                heapq.heappush(heap, (-bucket[-1], bucket))
                room, bucket = next(caps, bucket_cap), []
        if bucket:
            heapq.heappush(heap, (-bucket[-1], bucket))
    return [heapq.heappop(heap)[1] for _ in range(len(heap))]
