"""Codecs: what a gradient becomes before it is sent, as pure functions. They know nothing of ranks.

`codec`, what a codec is; `packing`, codes of 1, 2 or 4 bits in bytes; then from mild to harsh: `casts`, `qsgd`,
`sparse` (top-k and random-k), `sign`.
"""
