"""Tables of what autograd keeps of a forward pass for the backward pass, tensor by tensor.

Two tables. `paper_block` is a block of Megatron's in 16 bits, as in Korthikanti et al., "Reducing Activation
Recomputation in Large Transformer Models", 2205.05198, section 4: it adds up to sbh (34 + 5as/h).
`gpt_activations` is `dtlearn.models.GPT` in fp32, exactly as it is written; the memory ledger counts the same bytes.

The reason for a row is always a rule of calculus. A product keeps its factors: a linear layer its input (and its
weight, which is there anyway). A nonlinear function keeps its input or its output. An addition keeps nothing.

Letters of the formulae, the paper's: b batch, s sequence length, h hidden size, a heads, v vocabulary size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dtlearn.models import GPTConfig


class Activation(NamedTuple):
    """A row of a table: a tensor that is kept from the forward pass to the backward pass.

    Attributes:
        module: part of the model whose operation keeps it; a block's parts without "blocks.0".
        kept: what it is.
        needed_for: the gradient that cannot be computed without it.
        formula: its bytes in the letters of this file, such as "2sbh".
        elements: how many numbers.
        dtype: of a number, such as "fp16".
        element_bytes: bytes of a number.
    """

    module: str
    kept: str
    needed_for: str
    formula: str
    elements: int
    dtype: str
    element_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes of the tensor."""
        return self.elements * self.element_bytes


ActivationTable = tuple[Activation, ...]


def table_bytes(table: ActivationTable) -> int:
    """Bytes of all rows."""
    return sum(term.bytes for term in table)


@dataclass(frozen=True)
class ActivationSizes:
    """Sizes of a transformer block and of the batch in it.

    Attributes:
        batch: b, sequences.
        length: s, tokens of a sequence.
        hidden: h.
        heads: a.
        kv_heads: heads of key and value; 0 means as many as `heads`.
        feed_forward: width inside the feed-forward network; 0 means 4h.

    Raises:
        ValueError: a size below 1, or heads that do not divide.
    """

    batch: int
    length: int
    hidden: int
    heads: int
    kv_heads: int = 0
    feed_forward: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "length", "hidden", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.hidden % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide hidden ({self.hidden})")
        if self.kv_heads < 0 or self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads ({self.kv_heads}) must divide heads ({self.heads})")

    @property
    def sbh(self) -> int:
        """Elements of the tensor between two blocks."""
        return self.batch * self.length * self.hidden

    @property
    def scores(self) -> int:
        """Elements of the attention scores, b a s^2."""
        return self.batch * self.heads * self.length**2


def paper_block(sizes: ActivationSizes) -> ActivationTable:
    """The paper's table: 16-bit tensors, masks of one byte; 11sbh + 5abs^2 in attention, 19sbh, and 4sbh in norms.

    Left out, as in the paper: mean and variance of the norms, and biases. `block_variants` has other blocks.
    """
    sbh, scores = sizes.sbh, sizes.scores
    return (
        Activation("attention_norm", "input", "gradient of the input and the weight", "2sbh", sbh, "fp16", 2),
        Activation("attention", "input of query, key, value", "gradients of the three weights", "2sbh", sbh, "fp16", 2),
        Activation("attention", "query", "gradient of the key", "2sbh", sbh, "fp16", 2),
        Activation("attention", "key", "gradient of the query", "2sbh", sbh, "fp16", 2),
        Activation("attention", "softmax of the scores", "gradient of the scores", "2abs²", scores, "fp16", 2),
        Activation("attention", "mask of the dropout of it", "gradient of the dropout", "abs²", scores, "mask", 1),
        Activation("attention", "softmax after dropout", "gradient of the value", "2abs²", scores, "fp16", 2),
        Activation("attention", "value", "gradient of the softmax after dropout", "2sbh", sbh, "fp16", 2),
        Activation("attention.output", "input", "gradient of the weight", "2sbh", sbh, "fp16", 2),
        Activation("attention.dropout", "mask", "gradient of the dropout", "sbh", sbh, "mask", 1),
        Activation("feed_forward_norm", "input", "gradient of the input and the weight", "2sbh", sbh, "fp16", 2),
        Activation("feed_forward.up", "input", "gradient of the weight", "2sbh", sbh, "fp16", 2),
        Activation("feed_forward", "input of GELU", "gradient of GELU", "8sbh", 4 * sbh, "fp16", 2),
        Activation("feed_forward.down", "input", "gradient of the weight", "8sbh", 4 * sbh, "fp16", 2),
        Activation("feed_forward.dropout", "mask", "gradient of the dropout", "sbh", sbh, "mask", 1),
    )


def gpt_block(config: GPTConfig, batch: int, length: int) -> ActivationTable:
    """The table of one block of `dtlearn.models.GPT`, fp32, on the CPU.

    Without dropout attention is one fused operation, as FlashAttention, and keeps its output and a number per row of
    scores. Its output is the input of the next layer: one storage, one row. With dropout the CPU has no fused operation
    and keeps the scores three times; a mask of dropout is a tensor of fp32 there, not of bytes.
    """
    sizes = ActivationSizes(batch, length, config.hidden_size, config.num_heads)
    return (
        *_norm("attention_norm", sizes),
        _fp32("attention", "input of query, key, value", "gradients of the three weights", "4sbh", sizes.sbh),
        _fp32("attention", "query", "gradient of the key", "4sbh", sizes.sbh),
        _fp32("attention", "key", "gradient of the query", "4sbh", sizes.sbh),
        _fp32("attention", "value", "gradient of the scores", "4sbh", sizes.sbh),
        *(_scores_with_dropout(sizes) if config.dropout else _fused_scores(sizes)),
        _fp32("attention.output", "input", "gradient of the weight", "4sbh", sizes.sbh),
        *_mask("attention.dropout", sizes, config.dropout),
        *_norm("feed_forward_norm", sizes),
        _fp32("feed_forward.up", "input", "gradient of the weight", "4sbh", sizes.sbh),
        _fp32("feed_forward", "input of GELU", "gradient of GELU", "16sbh", 4 * sizes.sbh),
        _fp32("feed_forward.down", "input", "gradient of the weight", "16sbh", 4 * sizes.sbh),
        *_mask("feed_forward.dropout", sizes, config.dropout),
    )


def gpt_ends(config: GPTConfig, batch: int, length: int) -> tuple[ActivationTable, ActivationTable]:
    """The tables of the embedding, and of the head with `next_token_loss`.

    The tokens themselves are inputs: they were there before. Tied embeddings change nothing here.
    """
    sizes = ActivationSizes(batch, length, config.hidden_size, config.num_heads)
    logits = batch * length * config.vocab_size
    embedding = (
        Activation("embedding.position", "positions", "rows of the weight's gradient", "8s", length, "int64", 8),
        *_mask("embedding.dropout", sizes, config.dropout),
    )
    head = (
        *_norm("head.norm", sizes),
        _fp32("head.projection", "input", "gradient of the weight", "4sbh", sizes.sbh),
        _fp32("loss", "log-softmax of the logits", "gradient of the logits", "4sbv", logits),
        _fp32("loss", "number of tokens", "mean over the tokens", "4", 1),
    )
    return embedding, head


def gpt_activations(config: GPTConfig, batch: int, length: int) -> ActivationTable:
    """All that autograd keeps of a forward pass of our GPT and its loss: bytes after forward, to the byte.

    Rows of block i have "blocks.i." before their module.

    Args:
        config: of the model; it is in training mode.
        batch: sequences.
        length: tokens of each.

    Raises:
        ValueError: batch or length below 1, or more tokens than `context_length`.
    """
    if length > config.context_length:
        raise ValueError(f"length is {length}, but context_length is {config.context_length}")
    embedding, head = gpt_ends(config, batch, length)
    block = gpt_block(config, batch, length)
    blocks = (term._replace(module=f"blocks.{i}.{term.module}") for i in range(config.num_layers) for term in block)
    return (*embedding, *blocks, *head)


def mlp_activations(sizes: tuple[int, ...], batch: int) -> ActivationTable:
    """Return what autograd keeps of `dtlearn.models.MLP(sizes)` and its cross entropy; the inputs were there before.

    ReLU keeps its output, which is the input of the next layer: one storage, one row.
    """
    hidden = (
        _fp32(
            f"layers.{2 * i + 2}", "output of ReLU, input", "gradients of ReLU and of the weight", "4b·width", batch * n
        )
        for i, n in enumerate(sizes[1:-1])
    )
    return (
        *hidden,
        _fp32("loss", "log-softmax of the logits", "gradient of the logits", "4b·width", batch * sizes[-1]),
        _fp32("loss", "number of samples", "mean over the samples", "4", 1),
    )


def _fp32(module: str, kept: str, needed_for: str, formula: str, elements: int) -> Activation:
    return Activation(module, kept, needed_for, formula, elements, "fp32", 4)


def _norm(module: str, sizes: ActivationSizes) -> ActivationTable:
    """Layer norm: its input, and mean and 1 / standard deviation of each token."""
    tokens = sizes.batch * sizes.length
    return (
        _fp32(module, "input", "gradients of the input and the weight", "4sbh", sizes.sbh),
        _fp32(module, "mean", "gradient of the input", "4sb", tokens),
        _fp32(module, "1 / standard deviation", "gradient of the input", "4sb", tokens),
    )


def _mask(module: str, sizes: ActivationSizes, dropout: float) -> ActivationTable:
    """On the CPU a mask of dropout has the dtype of what it is multiplied with."""
    return (_fp32(module, "mask", "gradient of the dropout", "4sbh", sizes.sbh),) if dropout else ()


def _fused_scores(sizes: ActivationSizes) -> ActivationTable:
    """Scores are computed again from query and key; this is what it takes to normalise them."""
    rows = sizes.batch * sizes.heads * sizes.length
    return (_fp32("attention", "log of the sum of exp(scores)", "softmax, computed again", "4abs", rows),)


def _scores_with_dropout(sizes: ActivationSizes) -> ActivationTable:
    """Scores after softmax, and their dropout; the output is then copied, as its heads have to be put side by side."""
    return (
        _fp32("attention", "softmax of the scores", "gradient of the scores", "4abs²", sizes.scores),
        _fp32("attention", "mask of the dropout of it", "gradient of the dropout", "4abs²", sizes.scores),
        _fp32("attention", "softmax after dropout", "gradient of the value", "4abs²", sizes.scores),
    )
