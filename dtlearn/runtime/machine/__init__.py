"""This computer, as any of our processes meets it: it knows nothing of ranks, and every file stands alone.

Processes: `processes.py` (who is below whom), `helper_process.py` (ours in a new interpreter), `run_guarded.py` (a
command of which nothing is left). What they may do: `isolation.py`, `limits.py`, and below both `namespaces.py`, the
only calls of the C library. What there is: `memory.py`, `cores.py`, `network.py`; how long to wait: `patience.py`.
Files: `run_folder.py` (a run's own), `whole_file.py` (written whole or not at all).
"""
