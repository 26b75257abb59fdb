# expect: DTL-MISTAKE
# says: bytes are compared in the place of elements


def name_the_library(calls, num_params, micro_batches):
    """Compares the bytes of the gathers with those of the scatters."""
    by_group = {}
    for call in calls:
        by_group.setdefault(call["group"], {}).setdefault(call["op"], []).append(call)
    names = {}
    for group, ops in by_group.items():
        size = group.count(",") + 1
        gathers, scatters = ops.get("all_gather_into_tensor", []), ops.get("reduce_scatter_tensor", [])
        where = {call["phase"] for call in ops.get("all_reduce", []) if call["nbytes"] > 8}
        if "isend" in ops:
            names[group] = "pipeline"
        elif scatters:
            units = {call["nbytes"] * size for call in gathers}
            passes = {call["phase"] for call in gathers}
            fits = all(call["nbytes"] in units for call in scatters) and "" not in passes
            names[group] = ("FSDP2" if "backward" in passes else "FSDP2 without resharding") if fits else "ZeRO 3"
        elif gathers:
            reduced = sum(call["nbytes"] for op in ("all_reduce", "reduce") for call in ops.get(op, []))
            often = reduced > 6 * num_params
            names[group] = "ZeRO 1 or 2" if micro_batches == 1 else "ZeRO 2" if often else "ZeRO 1"
        else:
            names[group] = "tensor parallel" if "forward" in where else "DDP" if "backward" in where else "ZeRO 0"
    return names
