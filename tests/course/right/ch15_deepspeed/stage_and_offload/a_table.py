import math

TABLE = {
    (0, "none"): (16, 0, 0),
    (1, "none"): (4, 12, 0),
    (2, "none"): (2, 14, 0),
    (2, "optimizer"): (2, 0, 14),
    (3, "none"): (0, 16, 0),
    (3, "optimizer"): (0, 2, 14),
    (3, "parameters"): (0, 0, 16),
}


def stage_and_offload(*, num_params, largest_layer, nodes, gpus_per_node, activations, gpu_bytes, host_bytes):
    """Looks the bytes up: whole on a GPU, divided on a GPU, divided on the host."""
    part = math.ceil(num_params / (nodes * gpus_per_node))
    fitting = []
    for (stage, offload), (whole, divided, moved) in TABLE.items():
        gpu = whole * num_params + divided * part + activations + (stage // 3) * 4 * largest_layer
        host = moved * part * gpus_per_node
        if gpu > gpu_bytes or host > host_bytes:
            continue
        fitting.append({"stage": stage, "offload": offload, "gpu": gpu, "host": host})
    if not fitting:
        raise ValueError("more GPUs, or more memory, are needed")
    return fitting[0]
