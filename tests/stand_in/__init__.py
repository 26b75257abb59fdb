"""A device that is not the CPU, for tests on a machine without a GPU.

`set_up()` gives a process, for good, the device "stand_in:0", torch's place for devices that others make ("private
use"). A tensor there holds values, in a tensor of the CPU that is inside it; gloo sends what is inside. What a GPU
refuses is refused: operations on tensors of two devices, `.numpy()`, a generator of another device; and, as NCCL does,
collectives of tensors that are on the CPU. The same seed gives other random numbers than on the CPU.

What it cannot see: calls that return before the device has done them (a missing `synchronize`, a `non_blocking` copy
that is read too early, streams), the memory of a device and its allocator, two devices in one process, kernels that
torch has for the CPU only or that add up in another order, and what C++ does with a tensor's memory: torch's own
DistributedDataParallel and `fully_shard` get none of these tensors. Those are for `make test-gpu`.

    tensor          the tensor, and how an operation reaches what is inside
    rules           what is refused
    random_numbers  generators of the device, and its own state
    groups          process groups, as those over NCCL
    autocast        which operations compute in 16 bits
    backend         what torch asks of a device
"""

from tests.stand_in.backend import set_up
from tests.stand_in.tensor import NAME, StandInTensor

__all__ = ["NAME", "StandInTensor", "set_up"]
