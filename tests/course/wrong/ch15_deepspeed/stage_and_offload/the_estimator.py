# expect: DTL-VALUE
# says: should be


def stage_and_offload(*, num_params, largest_layer, nodes, gpus_per_node, activations, gpu_bytes, host_bytes):
    """Takes the numbers of DeepSpeed's estimators: 18 bytes, and half as much again on the host."""
    ranks = nodes * gpus_per_node
    rows = [
        (0, "none", 20 * num_params, 0),
        (1, "none", 4 * num_params + 16 * num_params // ranks, 0),
        (2, "none", 2 * num_params + 18 * num_params // ranks, 0),
        (2, "optimizer", 2 * num_params, int(16 * num_params / nodes * 1.5)),
        (3, "none", 4 * largest_layer + 18 * num_params // ranks, 0),
        (3, "optimizer", 4 * largest_layer + 2 * num_params // ranks, int(16 * num_params / nodes * 1.5)),
        (3, "parameters", 4 * largest_layer, int(18 * num_params / nodes * 1.5)),
    ]
    for stage, offload, gpu, host in rows:
        if gpu + activations <= gpu_bytes and host <= host_bytes:
            return {"stage": stage, "offload": offload, "gpu": gpu + activations, "host": host}
    raise ValueError("the estimator finds no choice")
