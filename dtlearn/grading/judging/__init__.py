"""Judges one answer. Runs in the judge, which never runs a learner's code.

Read `run_case` (one case on ranks), `compare` and `given_values` (what came back, against what should have),
`judge` (one case's verdict), `grade` (all cases, tiers, points).
"""
