"""Several machines: ranks on the nodes of a lab, behind the same interface as those of one machine.

`head/` runs where the notebook is, `node/` on each machine that joins; here is what both sides know: `config.py`
(`lab.toml`), `token.py` (who is let in), `loop.py` and `streams.py` (many streams through one connection),
`log_relay.py` (logs on their way to the head), `facts.py` (what a machine says of itself).
"""
