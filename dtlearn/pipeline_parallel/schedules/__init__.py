"""Schedules as pure generators: of one rank, which actions it does in which order. Pure functions for any process.

Read `naive`, `gpipe`, `one_f_one_b`, then `interleaved`, `zero_bubble` and `v_shaped`; `make` has a name for each.
"""
