"""A loss that is multiplied before the backward pass, so that small gradients survive float16.

For any process; with `group=` the ranks decide together. Read `static_scaling`, then `grad_scaler`.
"""
