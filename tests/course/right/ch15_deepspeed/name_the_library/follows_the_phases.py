from itertools import groupby

WIDTH = {"float64": 8, "float32": 4, "bfloat16": 2, "uint8": 1}


def name_the_library(calls, num_params, micro_batches):
    """Asks for the phases of each operation, and divides what is reduced by the parameters."""
    ordered = sorted(calls, key=lambda call: call["group"])  # a stable sort: the order of the calls stays
    names = {}
    for group, own in groupby(ordered, key=lambda call: call["group"]):
        n = len(group.split(","))
        phases, sizes = {}, {}
        for call in own:
            count = call["nbytes"] / WIDTH[call["dtype"]]
            if count > 1:
                phases.setdefault(call["op"], []).append(call["phase"])
                sizes.setdefault(call["op"], []).append(count)
        if not phases:
            continue
        gathered, sums = phases.get("all_gather_into_tensor"), phases.get("all_reduce", [])
        match bool(phases.get("isend") or phases.get("irecv")), "reduce_scatter_tensor" in phases, bool(gathered):
            case True, _, _:
                names[group] = "pipeline"
            case _, True, _:
                units = [count * n for count in sizes["all_gather_into_tensor"]]
                alike = all(count in units for count in sizes["reduce_scatter_tensor"])
                kind = "FSDP2" if "backward" in gathered else "FSDP2 without resharding"
                names[group] = kind if alike and gathered.count("") == 0 else "ZeRO 3"
            case _, _, True:
                rounds = (sum(sizes.get("all_reduce", [])) + sum(sizes.get("reduce", []))) / num_params
                names[group] = "ZeRO 1 or 2" if micro_batches < 2 else "ZeRO 1" if rounds < 1.5 else "ZeRO 2"
            case _:
                kinds = {"forward": "tensor parallel", "backward": "DDP", "": "ZeRO 0"}
                names[group] = next(kinds[phase] for phase in kinds if phase in sums)
    return names
