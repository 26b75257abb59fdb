# expect: DTL-MISTAKE
# says: the memory of the node is not looked at


def stage_and_offload(*, num_params, largest_layer, nodes, gpus_per_node, activations, gpu_bytes, host_bytes):
    """Counts the bytes of the host, and offloads whenever that helps the GPU."""
    n = nodes * gpus_per_node
    part = (num_params + n - 1) // n
    whole = {0: 16, 1: 4, 2: 2, 3: 0}
    for stage in range(4):
        extra = activations + 4 * largest_layer * (stage == 3)
        kept = whole[stage] * num_params + (16 - whole[stage]) * part + extra
        if kept <= gpu_bytes:
            return {"stage": stage, "offload": "none", "gpu": kept, "host": 0}
        if stage >= 2:
            kept = 2 * (num_params if stage == 2 else part) + extra
            if kept <= gpu_bytes:
                return {"stage": stage, "offload": "optimizer", "gpu": kept, "host": gpus_per_node * 14 * part}
    if extra <= gpu_bytes:
        return {"stage": 3, "offload": "parameters", "gpu": extra, "host": gpus_per_node * 16 * part}
    raise ValueError("too large")
