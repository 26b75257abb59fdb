"""What a rank's process does, from the fork to its end.

Read `spec.py`, the contract with the head: what a rank is told, and which files it writes; the head imports that file
too. Then `main.py` (from a forked process to a rank), which runs one of: `task.py` (one function, for `run_ranks`),
`kernel.py` with `kernel_output.py` (cells of a notebook), `store.py` (no rank: where those of a lab find each other).
Used by them: `group.py` (process groups, made and freed), `state.py` (what a busy rank says of itself),
`flight_recorder.py` (torch's own notes, a second source; the head reads its entries). Before all of it the agent runs
`preload.py` (what no rank should load for itself).
"""
