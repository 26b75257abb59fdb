def stage_and_offload(*, num_params, largest_layer, nodes, gpus_per_node, activations, gpu_bytes, host_bytes):
    """Begins with the choice that needs least, and goes on while a faster one fits."""
    ranks = nodes * gpus_per_node
    part = sum(1 for _ in range(0, num_params, ranks))
    steps = [("parameters", 3), ("optimizer", 3), ("none", 3), ("optimizer", 2), ("none", 2), ("none", 1), ("none", 0)]
    best = None
    for offload, stage in steps:
        states = [(2, stage >= 3, offload == "parameters"), (2, stage >= 2, offload != "none")]
        states += [(12, stage >= 1, offload != "none")]
        gpu, host = activations, 0
        if stage == 3:
            gpu += 2 * largest_layer * 2
        for size, is_divided, is_moved in states:
            amount = size * (part if is_divided else num_params)
            gpu, host = (gpu, host + amount * gpus_per_node) if is_moved else (gpu + amount, host)
        if gpu <= gpu_bytes and host <= host_bytes:
            best = {"stage": stage, "offload": offload, "gpu": gpu, "host": host}
    if best is None:
        raise ValueError(f"{num_params} parameters do not fit")
    return best
