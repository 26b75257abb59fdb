"""What was communicated, as data; runs in any process, and needs neither torch nor a process group.

Read `operations.py` (what each function of `torch.distributed` is: one table), `event.py` (one call, one phase),
`pairs.py` (which send belongs to which recv), `collectives.py` (which calls are one collective) and `record.py` (all of
a run). Then the way from the ranks' files to them: `log.py` reads a log that is complete, `log_tail.py` one that still
grows, `rank_file.py` either of them without trust. What is asked of a record: `training_steps.py` with `intervals.py`
(what overlaps, what is exposed), `chrome_trace.py` (shown by other programs).
"""
