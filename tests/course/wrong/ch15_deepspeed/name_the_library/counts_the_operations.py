# expect: DTL-MISTAKE
# says: a small all-reduce after the passes is taken for ZeRO's


def name_the_library(calls, num_params, micro_batches):
    """Looks only at which operations there are."""
    names = {}
    for group in {call["group"] for call in calls}:
        ops = {call["op"] for call in calls if call["group"] == group}
        back = {call["op"] for call in calls if call["group"] == group and call["phase"] == "backward"}
        ahead = {call["op"] for call in calls if call["group"] == group and call["phase"] == "forward"}
        if "isend" in ops or "irecv" in ops:
            names[group] = "pipeline"
        elif "reduce_scatter_tensor" in ops and "all_reduce" in ops:
            names[group] = "ZeRO 3"
        elif "reduce_scatter_tensor" in ops:
            names[group] = "FSDP2" if "all_gather_into_tensor" in back else "FSDP2 without resharding"
        elif "all_gather_into_tensor" in ops:
            names[group] = "ZeRO 1 or 2"
        elif "all_reduce" in ahead:
            names[group] = "tensor parallel"
        else:
            names[group] = "DDP" if "all_reduce" in back else "ZeRO 0"
    return names
