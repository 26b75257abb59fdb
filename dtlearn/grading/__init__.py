"""The grader: checks, runs of learners' answers on real ranks, verdicts that name the bug, reports.

The judge (this package, but for `on_rank` and `stress`) never runs a learner's code; the ranks never see a check.
"""
