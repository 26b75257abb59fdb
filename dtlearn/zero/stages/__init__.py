"""ZeRO's stages: 1 divides the optimizer's state among the ranks, 2 the gradients too, 3 the parameters too.

`flat_parameters`, what stages 1 and 2 stand on; `naive` and `zero1`; `zero2`; `zero3` and what
it is made of: `unit`, `sharded_bucket`, `unsharded_params`, `passes`, `division`, `prefetch`; `hybrid`.
"""
