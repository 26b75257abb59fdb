"""Changes of newer blocks in the activations: FlashAttention, grouped-query attention, SwiGLU, RMSNorm, no dropout.

The table of `activations.paper_block`, made of parts that can be exchanged. It counts the small rows too, which the
paper leaves out: the statistics of norms, in fp32.

Tied embeddings and rotary position embeddings are not here: they change no row. A tied weight is a parameter less, and
its gradient has two summands; a rotation keeps its tables of sine and cosine, which all blocks share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from .activations import Activation, ActivationSizes, ActivationTable, table_bytes

Norm = Literal["layer norm", "RMSNorm", "RMSNorm, unfused"]
DTYPES = {2: "bf16", 4: "fp32"}  # by bytes of an element


@dataclass(frozen=True)
class BlockKind:
    """The build of a block. The default is GPT-3's; `LLAMA_BLOCK` is Llama 3's.

    Attributes:
        fused_attention: FlashAttention or alike; False: scores are tensors of their own.
        swiglu: feed-forward network of SiLU(gate) * up; False: GELU.
        norm: "RMSNorm" is one operation, as PyTorch's on a GPU; "RMSNorm, unfused" several, as on the CPU, which keep
            the normalised input, too.
        dropout: on the scores and at the end of both branches; fused attention draws its mask again in backward.
        element_bytes: 2 or 4, of activations.

    Raises:
        ValueError: other elements, or another norm.
    """

    fused_attention: bool = False
    swiglu: bool = False
    norm: Norm = "layer norm"
    dropout: bool = True
    element_bytes: int = 2

    def __post_init__(self) -> None:
        if self.element_bytes not in DTYPES:
            raise ValueError(f"element_bytes must be 2 or 4, got {self.element_bytes}")
        if self.norm not in get_args(Norm):
            raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}; got {self.norm!r}")


GPT_BLOCK = BlockKind()
LLAMA_BLOCK = BlockKind(fused_attention=True, swiglu=True, norm="RMSNorm", dropout=False)


def block_activations(sizes: ActivationSizes, kind: BlockKind) -> ActivationTable:
    """Return what autograd keeps of a block, one row for each storage.

    As PyTorch's operations do it, one by one. A fused SwiGLU keeps two tensors of four and computes the others again.
    """
    kv = sizes.sbh * (sizes.kv_heads or sizes.heads) // sizes.heads
    return (
        *_norm("attention_norm", sizes, kind),
        _row("attention", "input of query, key, value", "gradients of the three weights", "sbh", sizes.sbh, kind),
        _row("attention", "query", "gradient of the key", "sbh", sizes.sbh, kind),
        _row("attention", "key", "gradient of the query", "sbh·kv/a", kv, kind),
        _row("attention", "value", "gradient of the scores", "sbh·kv/a", kv, kind),
        *_scores(sizes, kind),
        _row("attention.output", "input", "gradient of the weight", "sbh", sizes.sbh, kind),
        *_mask("attention.dropout", sizes.sbh, "sbh", kind),
        *_norm("feed_forward_norm", sizes, kind),
        _row("feed_forward.up", "input", "gradient of the weight", "sbh", sizes.sbh, kind),
        *_feed_forward(sizes, kind),
        *_mask("feed_forward.dropout", sizes.sbh, "sbh", kind),
    )


class Effect(NamedTuple):
    """The effect of one change of a block on the bytes that it keeps.

    Attributes:
        name: of the change.
        before, after: bytes of the block.
        why: in a sentence.
    """

    name: str
    before: int
    after: int
    why: str


def effects(sizes: ActivationSizes, kind: BlockKind = GPT_BLOCK, kv_heads: int = 8) -> list[Effect]:
    """Each change alone, of a block of these sizes; SwiGLU with 8h/3 features, which has as many weights as 4h of GELU.

    Args:
        sizes: of the block, with as many heads for key and value as for the query.
        kind: of the block before the change.
        kv_heads: of grouped-query attention.
    """
    grouped = replace(sizes, kv_heads=kv_heads)
    narrow = replace(sizes, feed_forward=8 * sizes.hidden // 3)
    before = table_bytes(block_activations(sizes, kind))
    changes = {
        "FlashAttention": (sizes, replace(kind, fused_attention=True), "scores are computed again, block by block"),
        "grouped-query attention": (grouped, kind, f"{kv_heads} heads of key and value in place of {sizes.heads}"),
        "SwiGLU": (narrow, replace(kind, swiglu=True), "four tensors of 8h/3 features in place of two of 4h"),
        "RMSNorm": (sizes, replace(kind, norm="RMSNorm"), "no mean; the input, which is most of it, is kept as before"),
        "no dropout": (sizes, replace(kind, dropout=False), "no masks, and the scores are not kept a second time"),
    }
    return [
        Effect(name, before, table_bytes(block_activations(new_sizes, new_kind)), why)
        for name, (new_sizes, new_kind, why) in changes.items()
    ]


def _row(module: str, kept: str, needed_for: str, letters: str, elements: int, kind: BlockKind) -> Activation:
    size = kind.element_bytes
    return Activation(module, kept, needed_for, f"{size}{letters}", elements, DTYPES[size], size)


def _mask(module: str, elements: int, letters: str, kind: BlockKind) -> ActivationTable:
    return (
        (Activation(module, "mask", "gradient of the dropout", letters, elements, "mask", 1),) if kind.dropout else ()
    )


def _norm(module: str, sizes: ActivationSizes, kind: BlockKind) -> ActivationTable:
    tokens = sizes.batch * sizes.length
    rows = [
        _row(module, "input", "gradients of the input and the weight", "sbh", sizes.sbh, kind),
        Activation(module, "1 / standard deviation", "gradient of the input", "4sb", tokens, "fp32", 4),
    ]
    if kind.norm == "layer norm":
        rows.append(Activation(module, "mean", "gradient of the input", "4sb", tokens, "fp32", 4))
    if kind.norm == "RMSNorm, unfused":
        rows.append(_row(module, "normalised input", "gradient of the weight", "sbh", sizes.sbh, kind))
    return tuple(rows)


def _scores(sizes: ActivationSizes, kind: BlockKind) -> ActivationTable:
    if kind.fused_attention:
        rows = sizes.batch * sizes.heads * sizes.length
        sums = "log of the sum of exp(scores)"
        return (Activation("attention", sums, "softmax, computed again", "4abs", rows, "fp32", 4),)
    softmax = _row("attention", "softmax of the scores", "gradient of the scores", "abs²", sizes.scores, kind)
    if not kind.dropout:
        return (softmax,)  # for the gradient of the value, too
    dropped = _row("attention", "softmax after dropout", "gradient of the value", "abs²", sizes.scores, kind)
    return (softmax, *_mask("attention", sizes.scores, "abs²", kind), dropped)


def _feed_forward(sizes: ActivationSizes, kind: BlockKind) -> ActivationTable:
    width = sizes.batch * sizes.length * (sizes.feed_forward or 4 * sizes.hidden)
    down = _row("feed_forward.down", "input", "gradient of the weight", "sbf", width, kind)
    if not kind.swiglu:
        return (_row("feed_forward", "input of GELU", "gradient of GELU", "sbf", width, kind), down)
    return (
        _row("feed_forward", "gate, input of SiLU", "gradient of SiLU", "sbf", width, kind),
        _row("feed_forward", "SiLU(gate)", "gradient of up", "sbf", width, kind),
        _row("feed_forward", "up", "gradient of SiLU(gate)", "sbf", width, kind),
        down,
    )
