"""The collectives as data, made by pure functions in any process: `plan.py` is the language.

`naive.py`, `ring.py`, `tree.py`, `halving_doubling.py` and `hierarchical.py` write in it.
"""
