"""Layer 3: ZeRO: optimizer states, gradients and parameters divided over ranks, each kept once."""

from .clipping import clip_by_local_norm_, clip_grad_norm_, global_norm

__all__ = ["clip_by_local_norm_", "clip_grad_norm_", "global_norm"]
