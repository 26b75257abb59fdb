"""Predict first: the learner commits a number or a choice, and a later cell shows it beside what happened.

Read `predict`, `form`, `answers` (the explanations, which stand apart from the notebook), `kept`.
"""
