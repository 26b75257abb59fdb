"""ZeRO's stages: 1 divides the optimizer's state among the ranks, 2 the gradients too, 3 the parameters too.

`flat_parameters`, the buffers of stages 1 and 2; `naive` and `zero1`; `zero2`; `naive_zero3`, `zero3`
and what that is made of: `unit`, `sharded_bucket`, `division`, `prefetch`; `hybrid`.
"""
