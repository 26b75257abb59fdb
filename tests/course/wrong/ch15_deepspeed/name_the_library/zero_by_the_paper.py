# expect: DTL-MISTAKE
# says: the gather after the step is overlooked


def name_the_library(calls, num_params, micro_batches):
    """Looks for what the paper says of ZeRO 1 and 2: a reduce-scatter, and an all-gather after the step."""
    names = {}
    for group in dict.fromkeys(call["group"] for call in calls):
        own = [call for call in calls if call["group"] == group]
        steps = {(call["op"], call["phase"]) for call in own}
        if ("isend", "") in steps:
            names[group] = "pipeline"
        elif ("all_reduce", "forward") in steps:
            names[group] = "tensor parallel"
        elif ("all_gather_into_tensor", "backward") in steps:
            names[group] = "FSDP2"
        elif ("all_gather_into_tensor", "forward") in steps:
            names[group] = "FSDP2 without resharding"
        elif any(op == "reduce_scatter_tensor" for op, _ in steps):
            names[group] = "ZeRO 1 or 2"
        else:
            names[group] = "DDP" if ("all_reduce", "backward") in steps else "ZeRO 0"
    return names
