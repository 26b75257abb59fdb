"""All benches, by the name that `dtlearn bench` knows them by."""

from importlib import import_module

from .bench import Bench

NAMES = (
    "platform.launch",
    "platform.cells",
    "platform.link",
    "platform.recorder",
    "chapters.collectives",
    "chapters.data_parallel",
    "chapters.parameter_server",
    "chapters.gradient_compression",
    "chapters.communication_scheduling",
    "chapters.mixed_precision",
    "chapters.memory",
    "chapters.zero",
    "chapters.pipeline",
    "chapters.tensor_parallel",
    "chapters.production",
    "chapters.hybrid_parallel",
    "chapters.context_parallel",
    "chapters.expert_parallel",
)
BENCHES: dict[str, Bench] = {n.partition(".")[2]: import_module(f".{n}", __package__).BENCH for n in NAMES}
