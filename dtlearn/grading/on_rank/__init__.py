"""What a graded rank does: load the answer, call it as the check says, hand the result back as plain data.

Runs on the ranks, in the learner's process; nothing that it says is trusted. Of a check only the text of its `on_rank`
comes here. Read `run_answer`, then `stress`, `left_running`, and what that text may use: the other two.
"""
