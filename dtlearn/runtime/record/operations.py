"""What each operation of `torch.distributed` is."""

from __future__ import annotations

# Which argument holds the payload of each operation, the first that is given.
PAYLOAD = {
    "all_reduce": ("tensor",),
    "broadcast": ("tensor",),
    "reduce": ("tensor",),
    "all_gather": ("tensor",),
    "all_gather_into_tensor": ("input_tensor",),
    "all_gather_single": ("input_tensor",),
    "reduce_scatter": ("input_list",),
    "reduce_scatter_tensor": ("input",),
    "reduce_scatter_single": ("input",),
    "all_to_all": ("input_tensor_list",),
    "all_to_all_single": ("input",),
    "gather": ("tensor",),
    "scatter": ("scatter_list", "tensor"),
    "send": ("tensor",),
    "recv": ("tensor",),
    "isend": ("tensor",),
    "irecv": ("tensor",),
    "all_reduce_coalesced": ("tensors",),
    "all_gather_coalesced": ("input_tensor_list",),
    "barrier": (),
    "monitored_barrier": (),
    "all_gather_object": (),
    "broadcast_object_list": (),
    "gather_object": (),
    "scatter_object_list": (),
    "new_group": (),
}


# Functions that do what another one does; the record has the name of that one.
SAME_AS = {
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_coalesced": "all_gather",
}


# Those that torch queues inside its coalescing manager, to make one call of them at its end.
QUEUED = frozenset({"all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"})


_PEER = {
    "send": "dst",
    "isend": "dst",
    "recv": "src",
    "irecv": "src",
    "broadcast": "src",
    "scatter": "src",
    "reduce": "dst",
    "gather": "dst",
    "broadcast_object_list": "src",
    "scatter_object_list": "src",
    "gather_object": "dst",
}


# What an operation is: the chapters, the figures and the budgets tell collectives and point-to-point apart.
P2P_OPS = frozenset({"send", "recv", "isend", "irecv"})
