"""The bytes that each rank keeps of a block's forward pass for backward, tensor by tensor, by how it is divided.

Bytes of the paper's block, 16-bit with dropout, on one rank of t:

    one rank                            sbh (34 + 5as/h)
    tensor parallelism                  sbh (10 + 24/t + 5as/ht)    what lies between the split layers is whole
    and sequence parallelism            sbh (34/t + 5as/ht)
    and selective recomputation         sbh (34/t)                  attention's scores are computed again
    full recomputation                  2sbh, with sequence parallelism 2sbh/t: the block's input

Tensor parallelism alone divides no activation that lies between the split layers: 10sbh stay whole on every rank. Of
GPT-3's 34sbh beside the scores, 8 ranks keep 13/34 each, not 1/8. The line with sequence parallelism takes for granted
that the inputs of column-parallel layers are gathered again in backward. Kept as they are gathered, they stay whole:
4sbh of the 10.

`paper_block` is that block; `gpt_block` is one of our own `ParallelGPT` in fp32, and `gpt_activations` all of that
model with its loss, to the byte.

Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2205.05198, sections 4 and
5, table 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from dtlearn.models import GPTConfig
from dtlearn.sharing.shards import divide

from ..vocabulary.rows import padded_vocabulary
from .sizes import BlockSizes

# Who divides a tensor by t: tensor parallelism, by features or heads; only sequence parallelism, by tokens; that, if
# inputs are gathered again; nobody.
Divided = Literal["by features", "by tokens", "by tokens, gathered again", "never"]


class Term(NamedTuple):
    """A row of a table: a tensor that is kept from the forward pass to the backward pass.

    Attributes:
        module: part of the block whose operation keeps it.
        kept: what it is.
        divided: by whom.
        elements: of the whole tensor.
        element_bytes: bytes of a number.
        scores: it belongs to attention's scores, which selective recomputation computes again.
    """

    module: str
    kept: str
    divided: Divided
    elements: int
    element_bytes: int
    scores: bool = False

    def bytes_with(self, num_ranks: int, *, sequence_parallel: bool = False, gather_again: bool = False) -> int:
        """Bytes on one rank; arguments and errors as in `table_bytes`."""
        divides = {
            "by features": True,
            "by tokens": sequence_parallel,
            "by tokens, gathered again": sequence_parallel and gather_again,
            "never": False,
        }
        parts = num_ranks if divides[self.divided] else 1
        return divide(self.elements, parts, f"elements of {self.kept}") * self.element_bytes


TermTable = tuple[Term, ...]


def table_bytes(
    table: Iterable[Term],
    num_ranks: int = 1,
    *,
    sequence_parallel: bool = False,
    gather_again: bool = False,
    selective: bool = False,
) -> int:
    """Bytes of all rows, on one rank.

    Args:
        table: of a block, or of several.
        num_ranks: t.
        sequence_parallel: tokens are divided between the split layers.
        gather_again: with it: inputs of column-parallel layers are kept as the rank's own tokens.
        selective: attention's scores are computed again.

    Raises:
        ValueError: the ranks do not divide a tensor that they share.
    """
    kept = (term for term in table if not (selective and term.scores))
    return sum(
        term.bytes_with(num_ranks, sequence_parallel=sequence_parallel, gather_again=gather_again) for term in kept
    )


def paper_block(sizes: BlockSizes) -> TermTable:
    """The paper's block: 16-bit tensors, masks of one byte; statistics of norms and biases are left out."""
    bsh, scores = sizes.bsh, sizes.batch * sizes.heads * sizes.length**2
    return (
        Term("attention_norm", "input", "by tokens", bsh, 2),
        Term("attention", "input of query, key, value", "by tokens, gathered again", bsh, 2),
        Term("attention", "query", "by features", bsh, 2),
        Term("attention", "key", "by features", bsh, 2),
        Term("attention", "softmax of the scores", "by features", scores, 2, scores=True),
        Term("attention", "mask of the dropout of it", "by features", scores, 1, scores=True),
        Term("attention", "softmax after dropout", "by features", scores, 2, scores=True),
        Term("attention", "value", "by features", bsh, 2),
        Term("attention.output", "input", "by features", bsh, 2),
        Term("attention.dropout", "mask", "by tokens", bsh, 1),
        Term("feed_forward_norm", "input", "by tokens", bsh, 2),
        Term("feed_forward.up", "input", "by tokens, gathered again", bsh, 2),
        Term("feed_forward", "input of GELU", "by features", 4 * bsh, 2),
        Term("feed_forward.down", "input", "by features", 4 * bsh, 2),
        Term("feed_forward.dropout", "mask", "by tokens", bsh, 1),
    )


def gpt_block(config: GPTConfig, batch: int, length: int) -> TermTable:
    """One block of `ParallelGPT`, fp32 on the CPU. Without dropout attention is one fused operation."""
    sizes = BlockSizes(batch, length, config.hidden_size, config.num_heads)
    bsh, rows = sizes.bsh, batch * config.num_heads * length
    scores = Term("attention", "log of the sum of exp(scores)", "by features", rows, 4)
    with_dropout = [
        Term("attention", kept, "by features", rows * length, 4, scores=True)
        for kept in ("softmax of the scores", "mask of the dropout of it", "softmax after dropout")
    ]
    return (
        *_norm("attention_norm", sizes),
        Term("attention", "input of query, key, value", "by tokens, gathered again", bsh, 4),
        *(Term("attention", kept, "by features", bsh, 4) for kept in ("query", "key", "value")),
        *(with_dropout if config.dropout else [scores]),
        Term("attention.output", "input", "by features", bsh, 4),
        *_mask("attention.dropout", sizes, config),
        *_norm("feed_forward_norm", sizes),
        Term("feed_forward.up", "input", "by tokens, gathered again", bsh, 4),
        Term("feed_forward", "input of GELU", "by features", 4 * bsh, 4),
        Term("feed_forward.down", "input", "by features", 4 * bsh, 4),
        *_mask("feed_forward.dropout", sizes, config),
    )


def gpt_activations(config: GPTConfig, batch: int, length: int, num_ranks: int) -> TermTable:
    """All that autograd keeps of `ParallelGPT.loss` on the CPU in fp32; rows of block i have "blocks.i." before them.

    The vocabulary is padded to a multiple of t, so this table, other than that of a block, is one for its t.

    Args:
        config: of the model; it is in training mode.
        batch: sequences.
        length: tokens of each.
        num_ranks: t.

    Raises:
        ValueError: a size below 1, or ranks that do not divide the heads.
    """
    sizes, tokens = BlockSizes(batch, length, config.hidden_size, config.num_heads), batch * length
    sizes.check_ranks(num_ranks)
    block = gpt_block(config, batch, length)
    logits = tokens * padded_vocabulary(config.vocab_size, num_ranks)
    return (
        Term("embedding.token", "places of the tokens among the own rows", "never", tokens, 8),
        Term("embedding.token", "which tokens have no own row", "never", tokens, 1),
        Term("embedding.position", "positions", "by tokens", length, 8),
        *_mask("embedding.dropout", sizes, config),
        *(term._replace(module=f"blocks.{i}.{term.module}") for i in range(config.num_layers) for term in block),
        *_norm("head.norm", sizes),
        Term("head.projection", "input", "by tokens, gathered again", sizes.bsh, 4),
        Term("loss", "softmax of the logits", "by features", logits, 4),
        Term("loss", "places of the targets among the own columns", "never", tokens, 8),
        Term("loss", "which targets have an own column, and which count", "never", 2 * tokens, 1),
        Term("loss", "number of tokens that count", "never", 1, 8),
    )


def _norm(module: str, sizes: BlockSizes) -> TermTable:
    """Layer norm: its input, and mean and 1 / standard deviation of each token."""
    tokens = sizes.batch * sizes.length
    return (
        Term(module, "input", "by tokens", sizes.bsh, 4),
        Term(module, "mean", "by tokens", tokens, 4),
        Term(module, "1 / standard deviation", "by tokens", tokens, 4),
    )


def _mask(module: str, sizes: BlockSizes, config: GPTConfig) -> TermTable:
    """On the CPU a mask of dropout has the dtype of what it is multiplied with."""
    return (Term(module, "mask", "by tokens", sizes.bsh, 4),) if config.dropout else ()
