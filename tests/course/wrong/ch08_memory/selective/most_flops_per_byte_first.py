# expect: DTL-MISTAKE
# says: most FLOPs per byte first


def selective(operations, budget):
    kept, held = [], 0
    for operation in sorted(operations, key=lambda o: -o["flops"] / o["bytes"]):
        if held + operation["bytes"] <= budget:
            kept.append(operation["name"])
            held += operation["bytes"]
    return kept
