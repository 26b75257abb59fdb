"""Layer 3: ZeRO: optimizer states, gradients and parameters divided over ranks, each kept once."""

from .clipping import clip_by_local_norm_, clip_grad_norm_, global_norm
from .precision import MixedPrecisionPolicy

__all__ = ["MixedPrecisionPolicy", "clip_by_local_norm_", "clip_grad_norm_", "global_norm"]
