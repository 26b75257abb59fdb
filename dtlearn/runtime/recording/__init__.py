"""Writes down what a rank says to others; runs in the rank.

Read `recorder.py` (what is installed, and what is not recorded), then what sees a call: `python_calls.py` with
`arguments.py` and `call_site.py` (calls as their author wrote them), `hidden_calls.py` with `dispatch.py` and
`operators.py` (what torch issues beneath), `late_ends.py` (ends that other threads hear of); `phases.py` (what the rank
was doing); and where it goes: `call_log.py` on `log_file.py`, by the time of `clock.py`. `record/log.py` reads it.
"""
