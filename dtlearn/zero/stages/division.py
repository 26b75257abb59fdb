"""The division of a model into units, and each unit's parameters into buckets and shards.

Large units are few messages and much memory: a model that is one unit gathers everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import nn

from ..partition.flat import plan_flat
from ..partition.partition import Bucket, Partition
from .sharded_bucket import ShardedBucket
from .unit import Slot, Unit

MakeBucket = Callable[[Bucket, Sequence[nn.Parameter]], ShardedBucket]


def shard_units(
    model: nn.Module, classes: Iterable[type[nn.Module]], num_ranks: int, make_bucket: MakeBucket
) -> tuple[list[Unit], Partition]:
    """Replace the parameters of a model by the sharded ones of this rank.

    Parameters of a unit that have the same dtype, are on the same device, and are trained, or frozen, are a bucket.

    Args:
        model: changed in place.
        classes: of the modules that are units; what lies in none of them is in the root unit, the model.
        num_ranks: N.
        make_bucket: makes the shard of a bucket. All ranks come to it for the same buckets in the same order.

    Returns:
        The units, the root first; and the plan, whose numbers count `model.parameters()`.

    Raises:
        ValueError: see `divide_into_units`.
    """
    parameters = list(model.parameters())
    numbers = {parameter: number for number, parameter in enumerate(parameters)}
    divided = divide_into_units(model, classes)
    unit_of = {parameter: name for name, (_, places) in divided.items() for *_, parameter in places}
    kinds = [(unit_of[p], p.dtype, p.device, p.requires_grad) for p in parameters]
    partition = plan_flat([p.numel() for p in parameters], num_ranks, kinds=kinds)
    buckets = dict[str, list[ShardedBucket]]()
    for bucket in partition.buckets:
        members = [parameters[number] for number in bucket.parameters]
        buckets.setdefault(unit_of[members[0]], []).append(make_bucket(bucket, members))
    units = []
    for name, (module, places) in divided.items():
        slots = [Slot(owner, attribute, numbers[parameter]) for owner, attribute, parameter in places]
        units.append(Unit(name, module, slots, buckets.get(name, [])))
    return units, partition


Place = tuple[nn.Module, str, nn.Parameter]  # a module, the name of an attribute, and the parameter that stands there


def divide_into_units(model: nn.Module, classes: Iterable[type[nn.Module]]) -> dict[str, tuple[nn.Module, list[Place]]]:
    """The parameters of each unit: the innermost module of one of the classes, or the model.

    Returns:
        By the name of the unit, "" first and the others in registration order: its module, and each place where one of
        its parameters stands.

    Raises:
        ValueError: a class of which the model has no module, or a parameter that two units have.
    """
    classes = tuple(classes)
    for wanted in classes:
        if not any(isinstance(module, wanted) for module in model.modules()):
            raise ValueError(f"units has {wanted.__name__}, but no module of the model is one")
    units: dict[str, tuple[nn.Module, list[Place]]] = {"": (model, [])}
    first_places = dict[nn.Parameter, tuple[str, str]]()
    for name, module, unit_name, unit in _walk(model, classes, "", "", model, {model: ""}):
        places = units.setdefault(unit_name, (unit, []))[1]
        for attribute, parameter in module._parameters.items():
            if parameter is None or any(place[0] is module and place[1] == attribute for place in places):
                continue
            full_name = f"{name}.{attribute}".lstrip(".")
            first_name, first_unit = first_places.setdefault(parameter, (full_name, unit_name))
            if first_unit != unit_name:
                raise ValueError(
                    f"{first_name} and {full_name} are one parameter, and lie in two units, {first_unit or 'the root'} "
                    f"and {unit_name or 'the root'}: one would free it while the other uses it. Choose units so that "
                    "one of them has both"
                )
            places.append((module, attribute, parameter))
    return units


def _walk(
    module: nn.Module,
    classes: tuple[type[nn.Module], ...],
    name: str,
    unit_name: str,
    unit: nn.Module,
    names: dict[nn.Module, str],
) -> Iterator[tuple[str, nn.Module, str, nn.Module]]:
    """All modules with their names, each with the name of its unit, and the unit. A unit used twice has one name."""
    if isinstance(module, classes) and name:
        unit_name, unit = names.setdefault(module, name), module
    yield name, module, unit_name, unit
    for child_name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, classes, f"{name}.{child_name}".lstrip("."), unit_name, unit, names)
