"""Judges logs and stacks while ranks run: is it a fault, which, and in which words; runs in the head.

Read `watch.py` (follows the logs), then the rules that it applies, as pure functions: `call_rules.py` (collectives),
`message_rules.py` (sends and receives), `leftover_calls.py` (what is left at the end), `stalls.py` (a loop, a
straggler, or just slow). `verdict.py` decides which error it is, the same way for a run, a cell and a request;
`explain.py` and `side_by_side.py` find the words.
"""
