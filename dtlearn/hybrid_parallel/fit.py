"""What a layout needs of a model and of a batch: who divides what, said with the numbers before a rank starts.

Sources: the checks of Megatron-LM's `core/parallel_state.py` and `training/arguments.py`; BLOOM, 2211.05100, section
3.2 and appendix, for the cut that counts the embedding and the head as layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from dtlearn.context_parallel import ContextMethod, TokenLayout

from .layout import MeshLayout, is_whole


def faults(
    layout: MeshLayout,
    *,
    world_size: int | None = None,
    num_heads: int | None = None,
    num_layers: int | None = None,
    sequence_length: int | None = None,
    global_batch: int | None = None,
    num_microbatches: int = 1,
    chunks: int = 1,
    num_experts: int | None = None,
    context_method: ContextMethod = "ring",
    token_layout: TokenLayout = "zigzag",
) -> list[str]:
    """What does not go together, a sentence each, with the numbers; nothing, if all does.

    **Communication** and **Memory**: none.

    Args:
        layout: of the run.
        world_size: ranks that there are.
        num_heads: of the model; tp divides them.
        num_layers: blocks of the model; see `even_boundaries`.
        sequence_length: tokens of a row; tp and cp divide them.
        global_batch: rows of a step, over all ranks.
        num_microbatches: into how many each pipeline cuts its rows.
        chunks: stages on each rank of a pipeline: v.
        num_experts: of each mixture; ep divides them.
        context_method, token_layout: of context parallelism. Ulysses divides heads, which tp has divided, over cp;
            zigzag cuts a row into 2 cp chunks.
    """
    counts = {"world_size": world_size, "num_heads": num_heads, "num_layers": num_layers}
    counts |= {"sequence_length": sequence_length, "global_batch": global_batch, "num_experts": num_experts}
    counts = {name: count for name, count in counts.items() if count is not None}
    found = _wrong_counts(counts | {"num_microbatches": num_microbatches, "chunks": chunks})
    found += _unknown_words(context_method=context_method, token_layout=token_layout)
    if found:  # there is nothing to divide
        return found
    if world_size is not None and layout.world_size != world_size:
        product = " * ".join(f"{axis} {size}" for axis, size in layout.sizes.items() if size > 1) or "1"
        found.append(
            f"the axes make {product} = {layout.world_size} ranks, and there are {world_size}: "
            f"{_nearest(layout, world_size)}"
        )
    if num_heads is not None and num_heads % layout.tp:
        found.append(f"tp={layout.tp} does not divide {num_heads} heads: tp can be {_divisors(num_heads)}")
    if num_layers is not None:
        try:
            even_boundaries(num_layers, layout.pp * chunks)
        except ValueError as error:
            found.append(str(error))
    by_ulysses = layout.tp * layout.cp
    if num_heads is not None and context_method == "ulysses" and num_heads % layout.tp == 0 and num_heads % by_ulysses:
        found.append(
            f"Ulysses divides the {num_heads // layout.tp} heads of a tp rank over cp={layout.cp}, which does not go: "
            f'cp can be {_divisors(num_heads // layout.tp)}, or take context_method="ring"'
        )
    if num_experts is not None and num_experts % layout.ep:
        found.append(f"ep={layout.ep} does not divide {num_experts} experts: ep can be {_divisors(num_experts)}")
    if sequence_length is not None:
        found += _length_faults(layout, sequence_length, token_layout)
    if global_batch is not None:
        found += _batch_faults(layout, global_batch, num_microbatches)
    return found


def check_layout(layout: MeshLayout, **model_and_batch: Any) -> None:
    """Refuse what does not go together.

    Args:
        layout, model_and_batch: as for `faults`.

    Raises:
        ValueError: all that is wrong, with the numbers.
    """
    if found := faults(layout, **model_and_batch):
        raise ValueError(f"{layout} does not fit: " + "; ".join(found))


def even_boundaries(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Where L blocks, with the embedding before and the head behind them, are cut into stages: L + 2 links.

    Each stage has as many blocks; the first one has the embedding too, the last one the head. Where that does not go,
    the ends count as a block each, as BLOOM's: 70 blocks in 12 stages are 5 and the embedding, 10 times 6, 5 and the
    head.

    Args:
        num_layers: L.
        num_stages: those of all ranks of a pipeline.

    Returns:
        As `pipeline_parallel.split_gpt` takes them: 4 blocks in 2 stages are (0, 3, 6).

    Raises:
        ValueError: neither L nor L + 2 is a multiple of the stages, or there is no layer or no stage.
    """
    if wrong := _wrong_counts({"num_layers": num_layers, "num_stages": num_stages}):
        raise ValueError("; ".join(wrong))
    if num_layers % num_stages == 0:
        each = num_layers // num_stages
        return (0, *(1 + each * stage for stage in range(1, num_stages)), num_layers + 2)
    if (num_layers + 2) % num_stages == 0:
        each = (num_layers + 2) // num_stages
        return tuple(each * stage for stage in range(num_stages + 1))
    raise ValueError(
        f"{num_stages} stages divide neither {num_layers} layers nor {num_layers + 2}, with the embedding and the head "
        f"as a layer each: stages can be {_divisors(num_layers)}, or {_divisors(num_layers + 2)}"
    )


def _wrong_counts(counts: Mapping[str, object]) -> list[str]:
    return [
        f"{name} is a whole number of 1 or more; got {count!r}"
        for name, count in counts.items()
        if not is_whole(count) or count < 1  # type: ignore[operator]
    ]


def _unknown_words(**words: str) -> list[str]:
    known = {"context_method": get_args(ContextMethod), "token_layout": get_args(TokenLayout)}
    return [
        f"{name} is one of {', '.join(known[name])}; got {word!r}"
        for name, word in words.items()
        if word not in known[name]
    ]


def _length_faults(layout: MeshLayout, length: int, token_layout: TokenLayout) -> list[str]:
    """A cp rank has one chunk or two of one length, and tp divides its tokens between the layers."""
    tp, cp = layout.tp, layout.cp
    chunks = 2 if token_layout == "zigzag" and cp > 1 else 1
    unit = cp * math.lcm(chunks, tp)
    if length % unit == 0:
        return []
    cut = f", of {chunks} chunks on each cp rank" if chunks > 1 else ""
    near = " or ".join(str(n * unit) for n in (length // unit, length // unit + 1) if n)
    return [f"tp={tp} times cp={cp}{cut} needs a multiple of {unit}, and there are {length} tokens: take {near}"]


def _batch_faults(layout: MeshLayout, rows: int, num_microbatches: int) -> list[str]:
    replicas = layout.num_replicas
    whose = f"dp={layout.dp}" if layout.ep == 1 else f"dp={layout.dp} times ep={layout.ep}"
    need = replicas * num_microbatches
    if rows < need:
        return [
            f"a global batch of {rows} rows is too small: {whose} in {num_microbatches} micro-batches need {need}, or "
            f"a multiple of that"
        ]
    if rows % need:
        return [
            f"{whose} in {num_microbatches} micro-batches make {need} parts, which do not divide a global batch of "
            f"{rows} rows: take {rows // need * need} or {rows // need * need + need}"
        ]
    return []


def _nearest(layout: MeshLayout, world_size: int) -> str:
    without = layout.world_size // layout.dp
    if world_size % without == 0:
        return f"dp={world_size // without} would use all"
    return f"{without} ranks hold the model once, which does not divide {world_size}"


def _divisors(number: int) -> str:
    return " or ".join(str(divisor) for divisor in range(1, min(number, 64) + 1) if number % divisor == 0)
