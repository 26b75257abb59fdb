"""Persistent ranks for notebook cells; runs in the head.

Read `ranks.py` (the hold on the processes) with `rank_client.py` (the line to each), then `task.py` (what they were
asked to do) with `standing.py` (how they stand), `cell.py` and `request.py` (the two kinds of task), `recovery.py`
(usable again after a bad end), `look_up.py` (names, for who types), and `world.py`, the face of it all that users see.
"""
