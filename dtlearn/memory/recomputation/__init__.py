"""Activations computed again in place of being kept.

`naive`, a checkpoint that forgets random numbers, to be caught; `checkpoint`, `page_checkpoint` for functions of any
kind; `every_k`, segments of k layers; `selective`, by operation, with `operation_costs`, what each operation costs;
`planner`, the cheapest set of layers for a budget.
"""
