"""Production: what breaks, and how jobs survive.

In this order: `page_resharding` is the idea that checkpoints rest on; `checkpoints/` saves a job and takes it up again.
`serving/` generates on several ranks, and lets some ranks serve while others train; `watching/` shows what a run does.
"""
