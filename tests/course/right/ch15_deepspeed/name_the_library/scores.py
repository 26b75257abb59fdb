from collections import Counter, defaultdict

BYTES = {"float64": 8, "int64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}


def name_the_library(calls, num_params, micro_batches):
    """Adds up elements by operation and phase; ZeRO 3 is told by gathers that are no multiple of a scatter."""
    totals = defaultdict(Counter)
    scatters = defaultdict(Counter)
    gathers = defaultdict(Counter)
    for call in calls:
        n = call["nbytes"] // BYTES[call["dtype"]]
        if n == 1:
            continue
        group = call["group"]
        totals[group][call["op"], call["phase"]] += n
        if call["op"].startswith("reduce_scatter"):
            scatters[group][n] += 1
        if call["op"].startswith("all_gather"):
            gathers[group][n * len(group.split(","))] += 1
    names = {}
    for group, total in totals.items():
        reduced = sum(n for (op, _), n in total.items() if op in ("all_reduce", "reduce"))
        if any(op in ("isend", "irecv") for op, _ in total):
            names[group] = "pipeline"
        elif scatters[group]:
            if total["all_gather_into_tensor", ""] or set(scatters[group]) - set(gathers[group]):
                names[group] = "ZeRO 3"
            elif total["all_gather_into_tensor", "backward"]:
                names[group] = "FSDP2"
            else:
                names[group] = "FSDP2 without resharding"
        elif gathers[group]:
            stage = 1 if reduced // num_params == 1 else 2
            names[group] = f"ZeRO {stage}" if micro_batches > 1 else "ZeRO 1 or 2"
        elif total["all_reduce", "forward"]:
            names[group] = "tensor parallel"
        else:
            names[group] = "DDP" if total["all_reduce", "backward"] else "ZeRO 0"
    return names
