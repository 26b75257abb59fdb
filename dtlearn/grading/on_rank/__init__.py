"""What a graded rank does: load the answer, call it as the check says, hand the result back as plain data.

Runs on the ranks, in the learner's process; nothing here is trusted, and nothing of a check is here. Read `run_answer`,
then `stress` (poison and delays) and `left_running` (threads and processes that an answer leaves).
"""
