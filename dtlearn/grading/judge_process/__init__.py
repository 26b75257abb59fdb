"""The judge as a process of its own, so that no cell of a notebook can reach what judges it.

`client` runs in the notebook's kernel and loads no torch; `server` is the judge, and says what the two tell each other.
"""
