# expect: DTL-MISTAKE
# says: only one name is given

SIZES = {"float32": 4, "bfloat16": 2, "float64": 8, "uint8": 1}


def name_the_library(calls, num_params, micro_batches):
    """Names the step, and gives the name to the first group."""
    calls = [call for call in calls if call["nbytes"] > SIZES[call["dtype"]]]
    group = calls[0]["group"]
    size = len(group.split(","))
    of = lambda *ops: [call for call in calls if call["op"] in ops]  # noqa: E731
    count = lambda call: call["nbytes"] // SIZES[call["dtype"]]  # noqa: E731
    gathers, scatters, sums = of("all_gather_into_tensor"), of("reduce_scatter_tensor"), of("all_reduce", "reduce")
    if of("isend", "irecv"):
        return {group: "pipeline"}
    if scatters:
        fits = {count(call) for call in scatters} == {count(call) * size for call in gathers}
        if not fits or any(call["phase"] == "" for call in gathers):
            return {group: "ZeRO 3"}
        again = [call for call in gathers if call["phase"] == "backward"]
        return {group: "FSDP2" if again else "FSDP2 without resharding"}
    if gathers:
        times = round(sum(map(count, sums)) / num_params)
        return {group: "ZeRO 1 or 2" if micro_batches == 1 else f"ZeRO {1 if times == 1 else 2}"}
    phases = [call["phase"] for call in sums]
    return {group: "tensor parallel" if "forward" in phases else "DDP" if "backward" in phases else "ZeRO 0"}
