"""Production: what breaks, and how jobs survive.

In this order: `page_resharding` is the idea that checkpoints rest on; `checkpoints/` saves a job and takes it up again,
perhaps on other ranks, among which `batch_plan` shares the batch.
`faults/` plants faults on real ranks and records who notices; `goodput/` is what is left of a job's time, by formula
and by run; `stragglers` finds the rank that all wait for.
`serving/` generates on several ranks, and lets some ranks serve while others train; `watching/` shows what a run does.
"""
