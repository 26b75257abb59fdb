"""A loss that is multiplied before the backward pass, so that small gradients survive float16.

For any process, but `drift`, which runs on the ranks; with `group=` ranks decide together. In this order:
`grad_scaler`, `clipping`, `skipped_steps`, `drift`.
"""
