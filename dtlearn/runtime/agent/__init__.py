"""Starting, signalling and hearing ranks; runs in the head and in the agent, the process with torch loaded.

Read the head's side first: `client.py` (what an agent is asked, and this machine's), `start.py` (what ranks are told),
`collector.py` (what they say, and their deaths), `stack_dumps.py`. Then the agent's: `server.py`, which makes a
`reaper.py` for each run, which has the ranks of one start in `forked_ranks.py`.
"""
