"""The tokens that a GPU needs in a step so that its products take as long as its messages.

Both grow with the parameters, so their number cancels: what is left is a rate of the GPU over a rate of the link.

Source: the same comparison for data parallelism and FSDP in "How To Scale Your Model",
https://jax-ml.github.io/scaling-book/training/.
"""

from __future__ import annotations


def tokens_to_hide(sent: float, flops: float, bandwidth: float, operations: float = 6.0) -> float:
    """Return the tokens per GPU and step from which on computation takes longer than communication.

    Without attention's own products, with (N-1)/N taken as 1, and with nothing that is exposed at the ends of a pass.

    Args:
        sent: bytes that a rank sends in a step for each parameter of the model.
        flops: operations a second that the GPU reaches.
        bandwidth: bytes a second that the GPU's link carries in each direction.
        operations: for each parameter and token: 6 forward and backward, 8 if the forward pass is computed twice.

    Raises:
        ValueError: a rate or the operations are not above 0, or the bytes are below 0.
    """
    if min(flops, bandwidth, operations) <= 0 or sent < 0:
        raise ValueError(f"rates above 0 and bytes of 0 or more are needed; got {flops, bandwidth, operations, sent}")
    return sent * flops / (operations * bandwidth)
