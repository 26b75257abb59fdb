def selective(operations, budget):
    places = {o["name"]: i for i, o in enumerate(operations)}

    def again(mask, i):
        """Bits of what is computed again for result i."""
        if mask >> i & 1:
            return 0
        found = 1 << i
        for name in operations[i]["inputs"]:
            found |= again(mask, places[name])
        return found

    costs = []
    for mask in range(1 << len(operations)):
        held = sum(o["bytes"] for i, o in enumerate(operations) if mask >> i & 1)
        if held <= budget:
            redone = 0
            for i, o in enumerate(operations):
                redone |= again(mask, i) if o["saved"] else 0
            costs.append((sum(o["flops"] for i, o in enumerate(operations) if redone >> i & 1), held, mask))
    mask = min(costs)[2]
    return [o["name"] for i, o in reversed([*enumerate(operations)]) if mask >> i & 1]
