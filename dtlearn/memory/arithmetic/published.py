"""Models and GPUs as data, and printed figures to compare one's own arithmetic with.

Sizes are those of the models as released. Memory of a GPU is what its driver reports, in MiB (`nvidia-smi`): "80 GB" of
an A100 are 80 GiB, of an H100 79.6 GiB, and "192 GB" of a B200 are 179 GiB. PyTorch can allocate somewhat less.

Sources. GPT-2: Radford et al., 2019, table 2, and the released models. GPT-3: Brown et al., 2005.14165, table 2.1.
Llama 3: Grattafiori et al., 2407.21783, table 3, and the released configurations (vocabulary 128,256).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dtlearn.models import GPTConfig

from .activations import ActivationSizes, paper_block, table_bytes
from .block_variants import GPT_BLOCK, LLAMA_BLOCK, BlockKind
from .training_state import GB, training_state

MIB = 2**20


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a decoder-only transformer.

    Attributes:
        name: with the number of parameters as it is usually given.
        layers: L, blocks.
        hidden: h.
        heads: a.
        vocabulary: v.
        context: tokens of a sequence in training.
        kv_heads: heads of key and value; 0: as many as `heads`.
        feed_forward: features inside the feed-forward network; 0: 4h.
        tied: whether the LM head is the token embedding.
        kind: how its blocks are built.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    context: int
    kv_heads: int = 0
    feed_forward: int = 0
    tied: bool = True
    kind: BlockKind = GPT_BLOCK

    @property
    def block_parameters(self) -> int:
        """Parameters of a block: with SwiGLU as Llama's, without biases; otherwise as GPT's, with biases everywhere."""
        h, f = self.hidden, self.feed_forward or 4 * self.hidden
        if not self.kind.swiglu:
            return 4 * h * h + 2 * h * f + 9 * h + f
        kv = h * (self.kv_heads or self.heads) // self.heads
        return 2 * h * h + 2 * h * kv + 3 * h * f + 2 * h

    @property
    def num_parameters(self) -> int:
        """All parameters. GPT has learned positions and a layer norm at the end, Llama rotary ones and RMSNorm."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        ends = self.hidden if self.kind.swiglu else (self.context + 2) * self.hidden
        return self.layers * self.block_parameters + embeddings + ends

    def block_sizes(self, batch: int, length: int = 0) -> ActivationSizes:
        """Sizes of a block with a batch in it; a length of 0 is the whole context."""
        return ActivationSizes(batch, length or self.context, self.hidden, self.heads, self.kv_heads, self.feed_forward)


def sizes_of(config: GPTConfig, name: str = "our GPT") -> ModelSizes:
    """The sizes of one of our own models. Without dropout its attention is fused."""
    return ModelSizes(
        name,
        config.num_layers,
        config.hidden_size,
        config.num_heads,
        config.vocab_size,
        config.context_length,
        tied=config.tie_embeddings,
        kind=BlockKind(fused_attention=not config.dropout, dropout=bool(config.dropout)),
    )


MODELS = {
    model.name: model
    for model in (
        ModelSizes("GPT-2 124M", 12, 768, 12, 50257, 1024),
        ModelSizes("GPT-2 355M", 24, 1024, 16, 50257, 1024),
        ModelSizes("GPT-2 774M", 36, 1280, 20, 50257, 1024),
        ModelSizes("GPT-2 1.5B", 48, 1600, 25, 50257, 1024),
        ModelSizes("GPT-3 175B", 96, 12288, 96, 50257, 2048),
        ModelSizes("Llama 3 8B", 32, 4096, 32, 128256, 8192, 8, 14336, tied=False, kind=LLAMA_BLOCK),
        ModelSizes("Llama 3 70B", 80, 8192, 64, 128256, 8192, 8, 28672, tied=False, kind=LLAMA_BLOCK),
        ModelSizes("Llama 3 405B", 126, 16384, 128, 128256, 8192, 8, 53248, tied=False, kind=LLAMA_BLOCK),
    )
}


class Gpu(NamedTuple):
    """A GPU: what it is sold as, in "GB", and what its driver reports, in MiB."""

    name: str
    sold_as_gb: int
    mib: int

    @property
    def bytes(self) -> int:
        """Bytes that the driver reports."""
        return self.mib * MIB


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("T4", 16, 15360),
        Gpu("L4", 24, 23034),
        Gpu("RTX 3090", 24, 24576),
        Gpu("RTX 4090", 24, 24564),
        Gpu("V100 32GB", 32, 32768),
        Gpu("A100 40GB", 40, 40960),
        Gpu("A100 80GB", 80, 81920),
        Gpu("H100 80GB", 80, 81559),
        Gpu("H200", 141, 143771),
        Gpu("B200", 192, 183359),
    )
}


class Figure(NamedTuple):
    """A printed figure, and the same by our arithmetic.

    Attributes:
        what: it is about.
        printed: the number in the source.
        ours: in the same unit.
        unit: of both.
        source: where it is printed, and by which rule.
    """

    what: str
    printed: float
    ours: float
    unit: str
    source: str


def published_figures() -> list[Figure]:
    """Figures from papers beside ours; tests hold them together to the digits that are printed.

    ZeRO's 60 GB of activations are by its own rule, 12 numbers of 2 bytes for each of sbh in a layer. It has no
    attention scores; the table of `paper_block` with them gives 287 GB for the same batch.
    """
    gpt_3, gpt_2 = MODELS["GPT-3 175B"], MODELS["GPT-2 1.5B"]
    state = sum(training_state(1500 * 10**6, "mixed 16").values())
    activations = 12 * gpt_2.hidden * 32 * 1024 * gpt_2.layers * 2
    zero = "1910.02054"
    korthikanti = "2205.05198, section 5: without the term 5as/h"
    mt_nlg = ActivationSizes(1, 2048, 20480, 128)
    rows = [
        Figure("GPT-3, fp32 weights", 700, 175 * 4, "GB", "175 billion parameters of 4 bytes"),
        Figure("GPT-3, training state", 2.8, 175 * 16 / 1000, "TB", "175 billion parameters of 16 bytes"),
        Figure("GPT-2 1.5B, training state", 24, state / GB, "GB", f"{zero}, section 3.1"),
        Figure(
            "GPT-2 1.5B, activations, 32 x 1024 tokens", 60, activations / GB, "GB", f"{zero}, 3.2: 12 sbhL numbers"
        ),
        Figure("GPT-3, saved by selective recomputation", 70, 100 * share(gpt_3.block_sizes(1)), "%", korthikanti),
        Figure("MT-NLG 530B, saved by selective recomputation", 65, 100 * share(mt_nlg), "%", korthikanti),
    ]
    for stage, printed in ((0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)):
        ours = zero_bytes(training_state(7500 * 10**6, "mixed 16"), stage, 64)
        rows.append(Figure(f"7.5B, ZeRO {stage}, 64 GPUs", printed, sum(ours.values()) / GB, "GB", f"{zero}, figure 1"))
    return rows


def share(sizes: ActivationSizes) -> float:
    """The share of a block's activations that belongs to attention scores, 0 to 1."""
    return 5 * sizes.scores / table_bytes(paper_block(sizes))


def zero_bytes(state: dict[str, int], stage: int, num_gpus: int) -> dict[str, int]:
    """Training state on one of so many GPUs: stage 1 divides optimizer state, 2 gradients too, 3 parameters too.

    Shares are rounded up. The layers that stage 3 gathers for use come on top.

    Raises:
        ValueError: another stage, or fewer than one GPU.
    """
    if stage not in (0, 1, 2, 3) or num_gpus < 1:
        raise ValueError(f"expected a stage from 0 to 3 and 1 GPU or more, got stage {stage} and {num_gpus} GPUs")
    divided = ("optimizer state", "gradients", "parameters")[:stage]
    return {name: -(-size // num_gpus) if name in divided else size for name, size in state.items()}
