"""Autocast: `policy`, which operation runs in which format; `autocast`, who casts; `op_dtypes`, a log of it."""
