# expect: DTL-RAISED
# says: a list of names of operations is expected

from itertools import combinations


def selective(operations, budget):
    by_name = {operation["name"]: operation for operation in operations}
    fitting = []
    for count in range(len(operations) + 1):
        for kept in combinations(by_name, count):
            if sum(by_name[name]["bytes"] for name in kept) <= budget:
                fitting.append(kept)
    return set(fitting[-1])
