"""Activations computed again in place of being kept.

`naive`, a checkpoint that forgets too much; `checkpoint`, the real one, with `surroundings`, what the second pass needs
of the first; `every_k`, segments of k layers; `selective`, by operation, with `operation_costs`, what each operation
costs; `planner`, the cheapest set of layers for a budget.
"""
