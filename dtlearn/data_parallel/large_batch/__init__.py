"""Learning rates and optimizers for a large batch: many ranks make one, whether it is wanted or not.

Formulae and optimizers, for any process; no file here communicates. In this order:
`learning_rate` scales it with the batch and warms it up; `lars` and `lamb` give each layer a rate of its own;
`noise_scale` says up to what size a larger batch pays.
"""
