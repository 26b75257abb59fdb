"""Floating-point operations of a step, and the two utilisations that are made of them.

Model FLOPs are what the mathematics of a step needs: forward once and backward, which is twice that. Hardware FLOPs
are what is computed, recomputation included. MFU divides the one, HFU the other, by the peak (PaLM, 2204.02311,
appendix B; Korthikanti et al., 2205.05198, section 6.3). Papers differ in more than that name:

- `eq3`, Megatron's F of Narayanan et al., 2104.04473, equation 3: 96 BSlh^2 (1 + s/6h + V/16lh), always with one
  full recomputation, scores of attention counted whole, as if no mask were there;
- `palm`, 6 N + 12 L h s for each token: attention counted whole, and all parameters N, embeddings too;
- 6 N D: no attention at all.
"""

from __future__ import annotations

from dtlearn.memory.arithmetic.published import ModelSizes

from .run import TrainingRun


def layer_flops(model: ModelSizes, tokens: float, length: float) -> tuple[float, float]:
    """Forward products of one block for so many tokens: with weights, and of attention (scores counted whole)."""
    h, f = model.hidden, model.feed_forward or 4 * model.hidden
    kv = h * (model.kv_heads or model.heads) / model.heads
    weights = 2 * h * h + 2 * h * kv + (3 if model.kind.swiglu else 2) * h * f
    return 2.0 * tokens * weights, 4.0 * tokens * length * h


def model_flops(model: ModelSizes, tokens: float, length: float) -> float:
    """FLOPs of a training step: those of 3 forward passes. For a GPT 72Bslh^2 (1 + s/6h + V/12lh)."""
    return 3 * (model.layers * sum(layer_flops(model, tokens, length)) + 2.0 * tokens * model.vocabulary * model.hidden)


def hardware_flops(model: ModelSizes, tokens: float, length: float, recompute: str) -> float:
    """`model_flops` and what recomputation adds: blocks once more, or the two products of attention."""
    weights, attention = layer_flops(model, tokens, length)
    again = {"full": weights + attention, "selective": attention, "ops": weights / 2}.get(recompute, 0.0)
    return model_flops(model, tokens, length) + model.layers * again


def eq3(model: ModelSizes, batch: float, length: float) -> float:
    """F of 2104.04473, equation 3: with full recomputation of the blocks."""
    b, s, n, h, v = batch, length, model.layers, model.hidden, model.vocabulary
    return 96 * b * s * n * h * h * (1 + s / (6 * h) + v / (16 * n * h))


def korthikanti_hardware(model: ModelSizes, batch: float, length: float) -> float:
    """Hardware FLOPs with selective recomputation as 2205.05198, equation 9, has them: 72BLsh^2 (1 + s/3h + v/12hL).

    It counts the scores' share s/6h once more; one more forward pass of two products is s/18h (`hardware_flops`).
    """
    b, s, n, h, v = batch, length, model.layers, model.hidden, model.vocabulary
    return 72 * b * n * s * h * h * (1 + s / (3 * h) + v / (12 * h * n))


def palm_flops_per_token(parameters: float, layers: int = 0, hidden: int = 0, length: int = 0) -> float:
    """6 N + 12 L h s: 2204.02311, appendix B. Without layers it leaves attention out: 6 N."""
    return 6.0 * parameters + 12.0 * layers * hidden * length


def utilisation(flops: float, seconds: float, chips: int, peak: float) -> float:
    """The share of the peak, 0 to 1: MFU or HFU, depending on which FLOPs are given."""
    return flops / (seconds * chips * peak)


def run_flops(run: TrainingRun) -> tuple[float, float]:
    """Model and hardware FLOPs of a step of a run."""
    return (
        model_flops(run.model, run.tokens, run.length),
        hardware_flops(run.model, run.tokens, run.length, run.recompute),
    )
