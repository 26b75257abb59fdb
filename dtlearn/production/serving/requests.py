"""What is asked of a model that generates: plain data, the same on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GenerationRequest:
    """One text to be continued.

    Attributes:
        prompt: tokens, at least one.
        max_new_tokens: how many are generated, unless `stop_token` comes first.
        temperature: 0: greedy, the token with the largest logit; above: drawn from softmax(logits / temperature).
        seed: of the draws.
        arrival: the step of the server at which the request is there; only `batching` looks at it.
        stop_token: ends the text, and is its last token; None: no token does.

    Raises:
        ValueError: an empty prompt, no new token, or a temperature or an arrival below 0.
    """

    prompt: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    arrival: int = 0
    stop_token: int | None = None

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError("a request needs a prompt of at least one token; got none")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be 1 or more; got {self.max_new_tokens}")
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 (greedy) or more; got {self.temperature}")
        if self.arrival < 0:
            raise ValueError(f"arrival is a step of the server, 0 or more; got {self.arrival}")

    @property
    def length(self) -> int:
        """Positions that its keys and values take: the last new token is never given to the model."""
        return len(self.prompt) + self.max_new_tokens - 1

    def is_done(self, new_tokens: Sequence[int]) -> bool:
        """Whether the text ends after these new tokens."""
        return len(new_tokens) >= self.max_new_tokens or bool(new_tokens and new_tokens[-1] == self.stop_token)


def require_room(requests: Sequence[GenerationRequest], length: int) -> None:
    """Raise ValueError if there is no request, or the cache or the model has too few positions for one of them."""
    if not requests:
        raise ValueError("there is no request: give at least one GenerationRequest")
    for number, request in enumerate(requests):
        if request.length > length:
            raise ValueError(
                f"request {number} needs {request.length} positions ({len(request.prompt)} of its prompt and "
                f"{request.max_new_tokens} new tokens less one), but there are {length}: ask for fewer tokens"
            )
