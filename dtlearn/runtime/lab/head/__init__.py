"""The head of a lab; runs in the process of the notebook.

Read `agent.py` (all nodes as one `Agent`), `members.py` (who belongs to the lab; starts them by `start_nodes.py`),
`port.py` (the encrypted port that they join), `node_agent.py` (one node, asked over the network), `store.py` (where
the ranks meet), `reachability.py` (can each node reach each other one), `launch.py` (a script under torchrun on all
nodes).
"""
