"""Benches of the platform: starting ranks, cells, the emulated link, the recorder.

`other_launchers` are the rivals of `launch`, `ipyparallel_cells` that of `cells`.
"""
