# expect: DTL-MISTAKE
# says: exactly the budget is taken for too large

from itertools import combinations


def selective(operations, budget):
    by_name = {operation["name"]: operation for operation in operations}
    best = None
    for count in range(len(operations) + 1):
        for kept in combinations(by_name, count):
            nbytes = sum(by_name[name]["bytes"] for name in kept)
            if kept and nbytes >= budget:
                continue
            needed = {o["name"] for o in operations if o["saved"]}
            again = 0
            for operation in reversed(operations):
                if operation["name"] in needed and operation["name"] not in kept:
                    again += operation["flops"]
                    needed.update(operation["inputs"])
            if best is None or (again, nbytes) < best[:2]:
                best = again, nbytes, list(kept)
    return best[2]
