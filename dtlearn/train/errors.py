"""What the user can put right: shown as one message, without a stack trace, with exit code 2."""

from __future__ import annotations


class TrainError(ValueError):
    """The run cannot start, or cannot be resumed. The message says what to do. Every rank raises it."""
