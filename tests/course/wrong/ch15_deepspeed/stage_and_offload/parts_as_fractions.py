# expect: DTL-DIFFICULTY
# says: its padding takes memory, too


def stage_and_offload(*, num_params, largest_layer, nodes, gpus_per_node, activations, gpu_bytes, host_bytes):
    """Divides bytes by the ranks, instead of parameters."""
    n = nodes * gpus_per_node
    table = [
        (0, "none", 16, 0, 0),
        (1, "none", 4, 12, 0),
        (2, "none", 2, 14, 0),
        (2, "optimizer", 2, 0, 14),
        (3, "none", 0, 16, 0),
        (3, "optimizer", 0, 2, 14),
        (3, "parameters", 0, 0, 16),
    ]
    for stage, offload, whole, divided, moved in table:
        gpu = activations + whole * num_params + round(divided * num_params / n) + 4 * largest_layer * (stage == 3)
        host = round(moved * num_params / nodes)
        if gpu <= gpu_bytes and host <= host_bytes:
            return {"stage": stage, "offload": offload, "gpu": gpu, "host": host}
    raise ValueError("no choice is left")
