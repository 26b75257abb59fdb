# expect: DTL-MISTAKE
# says: counted once for each of them

from itertools import combinations


def selective(operations, budget):
    by_name = {operation["name"]: operation for operation in operations}

    def cost(name, kept):
        if name in kept:
            return 0
        return by_name[name]["flops"] + sum(cost(one, kept) for one in by_name[name]["inputs"])

    choices = []
    for count in range(len(operations) + 1):
        for kept in combinations(by_name, count):
            held = sum(by_name[name]["bytes"] for name in kept)
            if held <= budget:
                again = sum(cost(o["name"], kept) for o in operations if o["saved"])
                choices.append((again, held, kept))
    return list(min(choices)[2])
