"""The version of this package, as `pyproject.toml` has it. All others may import this; it imports nothing."""

VERSION = "0.1.0"
