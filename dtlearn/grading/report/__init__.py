"""Verdicts as people and machines want them: console, notebook, JUnit, Gradescope, gradebooks, LTI, class summary.

Each format is a pure function of verdicts. Each one first takes `learner.learner_view`, which leaves out what a
hidden case would give away and makes every text safe to show.
"""
