"""Verdicts as people and machines want them: console, notebook, JUnit.

Each format is a pure function of verdicts. Each one first takes `learner_view.learner_view`, which leaves out what a
hidden case would give away and makes every text safe to show. Read `words` and `codes`, `safe` and `learner_view`; then
`console`, `html`, `junit`.
"""
