"""Where shards are kept, and in which format they are sent: on the device as they are, rounded, or on the host.

    shard -> to_gather -> all-gather -> forward, backward -> to_reduce -> reduce-scatter -> to_gradient -> shard.grad

The strategy calls these steps, and does not know which precision and which memory its user has chosen.
"""

from __future__ import annotations

import torch

from dtlearn.sharing.host_memory import Host

from .precision import MixedPrecisionPolicy


class ShardStore:
    """The steps between a shard and what ranks send, with a policy for dtypes and perhaps a host for the memory.

    **Communication**: none between ranks; with a host, a copy of n/N bytes in `keep`, `on_device` and `to_gradient`.
    **Memory**: without a host and a policy, none beyond the tensors that are named.

    Args:
        policy: dtypes of what is gathered and of what is reduced; None: those of the shard.
        host: keeps shards and their gradients; None: the device does.
    """

    def __init__(self, policy: MixedPrecisionPolicy | None = None, host: Host | None = None) -> None:
        self.policy, self.host = policy or MixedPrecisionPolicy(), host

    def of_dtype(self, dtype: torch.dtype) -> ShardStore:
        """The store for shards of this dtype: whole numbers are not rounded."""
        return self if dtype.is_floating_point else ShardStore(None, self.host)

    def keep(self, values: torch.Tensor) -> torch.Tensor:
        """A copy of values on the device, as a shard or as its gradient."""
        return values.clone() if self.host is None else self.host.download(values)

    def copy(self, shard: torch.Tensor) -> torch.Tensor:
        """A second shard with the same values."""
        return shard.clone() if self.host is None else self.host.keep(shard)

    def write(self, shard: torch.Tensor, values: torch.Tensor) -> None:
        """Give a shard other values."""
        shard.copy_(values if self.host is None else self.host.download(values))

    def on_device(self, shard: torch.Tensor, device: torch.device) -> torch.Tensor:
        """The shard, or a copy of it if it is on the host."""
        if self.host is None:
            return shard
        return self.host.upload(shard, device)

    def to_gather(self, shard: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return what an all-gather sends of a shard, (k,)."""
        return self.policy.to_gather(self.on_device(shard, device))

    def to_reduce(self, gradient: torch.Tensor, divisor: int) -> torch.Tensor:
        """Return what a reduce-scatter sends of a flat gradient, (N * k,), which may be changed."""
        return self.policy.to_reduce(gradient, divisor)

    def to_gradient(self, reduced: torch.Tensor, shard: torch.Tensor, divisor: int) -> torch.Tensor:
        """The gradient of a shard, (k,), of the sum over the ranks."""
        mean = self.policy.to_shard(reduced, shard, divisor)
        return mean if self.host is None else self.host.download(mean)

    def finish(self) -> None:
        """Wait until the host has what was copied to it."""
        if self.host is not None:
            self.host.finish()
