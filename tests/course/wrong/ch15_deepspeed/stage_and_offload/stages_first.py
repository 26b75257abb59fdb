# expect: DTL-MISTAKE
# says: stage 3 is tried before the offload of stage 2


def stage_and_offload(*, num_params, largest_layer, nodes, gpus_per_node, activations, gpu_bytes, host_bytes):
    """Tries all four stages, and offloads when none of them is enough."""
    ranks = gpus_per_node * nodes
    part = num_params // ranks + (num_params % ranks > 0)

    def bytes_of(stage, offload):
        rows = [(2, 3, ("parameters",)), (2, 2, ("optimizer", "parameters")), (12, 1, ("optimizer", "parameters"))]
        gpu, host = activations, 0
        for size, divided_from, moved_by in rows:
            amount = size * (part if stage >= divided_from else num_params)
            if offload in moved_by:
                host += amount
            else:
                gpu += amount
        return gpu + (4 * largest_layer if stage == 3 else 0), host * gpus_per_node

    order = [(stage, "none") for stage in range(4)] + [(2, "optimizer"), (3, "optimizer"), (3, "parameters")]
    for stage, offload in order:
        gpu, host = bytes_of(stage, offload)
        if gpu <= gpu_bytes and host <= host_bytes:
            return dict(stage=stage, offload=offload, gpu=gpu, host=host)
    raise ValueError("nothing fits")
