"""A notebook's code on the stand-in: what its world and its `run_ranks` would put on GPUs, where there is none.

python -c "from tests.in_notebooks import use; use()"   in the notebook's kernel, before its first cell
"""

import functools
import os
import sys

import dtlearn
from dtlearn.runtime import run
from dtlearn.runtime.device import DEVICE_VARIABLE
from dtlearn.runtime.output import Sink
from dtlearn.runtime.world import world as worlds
from tests import devices

ON_A_RANK = "from tests.in_notebooks import on_a_rank; device = on_a_rank(); del on_a_rank"


def use() -> None:
    """From now on this process's ranks have the stand-in, but for those that are asked to be on the CPU."""
    begin, plain, link = worlds.World.__init__, run.run_ranks, worlds.World.link

    def world_on_stand_in(world, world_size, device="auto", *args, **options):
        begin(world, world_size, device, *args, **options)
        world.on_stand_in = device != "cpu"
        if world.on_stand_in:
            world.setup_cells.append(ON_A_RANK)
            world.execute(ON_A_RANK, sink=Sink())

    @functools.wraps(plain)
    def run_on_stand_in(fn, world_size, *args, device="auto", **options):
        if device != "cpu":
            refuse_link(options.get("link"))
        return devices.run_ranks(fn, world_size, *args, device="cpu" if device == "cpu" else "stand_in", **options)

    def set_link(world, value):
        if world.on_stand_in:
            refuse_link(value)
        link.fset(world, value)

    worlds.World.link = property(link.fget, set_link)
    worlds.World.__init__ = world_on_stand_in
    run.run_ranks = run_on_stand_in
    for module in [module for name, module in sys.modules.items() if name.startswith("dtlearn")]:
        if vars(module).get("run_ranks") is plain:
            module.run_ranks = run_on_stand_in
    dtlearn.run_ranks = run_on_stand_in


def refuse_link(link) -> None:
    """As ranks on GPUs do."""
    if link is not None:
        raise ValueError('an emulated link works with gloo on CPU. Add device="cpu".')


def on_a_rank():
    """Give this rank the stand-in, if its world was not asked to be on the CPU."""
    from tests.stand_in.backend import set_up

    here = set_up()
    os.environ[DEVICE_VARIABLE] = str(here)
    return here
