"""Whatever reads what a learner's program wrote runs in a process of its own, with limits.

`client` asks for verdicts, `server` has torch loaded and forks those processes, `grader` is one of them.
"""
