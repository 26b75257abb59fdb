"""`run_ranks` for tests that take a device: the CPU, the stand-in of `tests.stand_in`, or GPUs.

    from tests.devices import run_ranks

    def test_it_is_the_single_process_run(device):
        run_ranks(parity, 2, device=device)

What runs on the ranks asks `dtlearn.device()`, as ever. `tests/conftest.py` says which devices a run of pytest takes.
"""

import functools
import os

from dtlearn.runtime import run
from dtlearn.runtime.device import DEVICE_VARIABLE

STAND_IN = "stand_in"


def run_ranks(fn, world_size, *args, device, **options):
    """`dtlearn.run_ranks`, for one more device. Tensors that come back are on the CPU, from every device."""
    if device == STAND_IN:
        fn, device = functools.partial(on_stand_in, fn), "cpu"
    return run.run_ranks(fn, world_size, *args, device=device, **options)


def on_stand_in(fn, *args):
    """Call `fn` in a process, a rank, whose device is the stand-in from now on."""
    from tests.stand_in import set_up

    os.environ[DEVICE_VARIABLE] = str(set_up())
    return fn(*args)
