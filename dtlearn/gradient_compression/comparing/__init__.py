"""Methods beside each other: what each does to the loss, to the bytes, and to the seconds of a step.

Read `tasks.py` (what is trained), `methods.py` (how each averages, by name), `run.py` (on ranks, and in the record).
"""
