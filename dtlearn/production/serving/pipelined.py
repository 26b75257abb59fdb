"""Generation on the stages of a pipeline.

The next token of a text is known when the last stage is done, and only then can the first stage begin with it. One text
alone keeps one stage busy at a time. So several groups of requests are in flight: while the last stage works for one
group, the first works for another. p groups fill p stages.

Shapes in this file: as in `kv_cache`; p is the number of stages.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel.split_model import GPTStage
from dtlearn.runtime.recording.phases import phase
from dtlearn.sharing.shards import rank_and_size

from .cached_model import CachedGPT
from .generate import last_token_inputs, prompt_inputs
from .kv_cache import KVCache
from .requests import GenerationRequest, require_room
from .sampling import next_token


def in_groups(requests: Sequence[GenerationRequest], num_groups: int) -> list[list[int]]:
    """Numbers of the requests in each group, in turn: 5 requests in 2 groups are [0, 2, 4] and [1, 3].

    Raises:
        ValueError: fewer requests than groups, or no group.
    """
    if not 1 <= num_groups <= len(requests):
        raise ValueError(f"{len(requests)} requests can be in 1 to {len(requests)} groups; got {num_groups}")
    return [list(range(group, len(requests), num_groups)) for group in range(num_groups)]


def generate_pipelined(
    stage: GPTStage,
    config: GPTConfig,
    requests: Sequence[GenerationRequest],
    *,
    num_groups: int | None = None,
    tp: int = 1,
    group: dist.ProcessGroup | None = None,
) -> list[list[int]] | None:
    """The new tokens of each request, on the last stage; None on the others.

    **Communication**: see `traffic.pipeline_traffic`: outputs to the next stage, and tokens, 8 bytes each, from the
    last stage to the first. All ranks know the requests, and so the shape of every message.
    **Memory**: `cache_bytes` of this stage's blocks, for all requests at once: groups in flight all keep theirs.

    Args:
        stage: this rank's, in evaluation mode; rank s of the group has stage s of p.
        config: of the whole model.
        requests: the same on all ranks; none with a `stop_token`, which only the last stage would see.
        num_groups: how many are in flight; None: p, or as many as there are requests.
        tp: ranks that each layer of the stage is divided among. Then each has a pipeline of its own, `group`.
        group: the ranks of the pipeline; None: all.

    Raises:
        ValueError: see above; or a text longer than the context.
    """
    rank, num_stages = rank_and_size(group)
    require_room(requests, config.context_length)
    if any(request.stop_token is not None for request in requests):
        raise ValueError("in a pipeline only the last stage would see a stop_token: set max_new_tokens instead")
    groups = in_groups(requests, min(num_stages, len(requests)) if num_groups is None else num_groups)
    weight = next(stage.parameters())
    options = {"num_layers": len(stage.blocks), "tp": tp}
    length = max(request.length for request in requests)
    cache = KVCache(config, len(requests), length, **options, dtype=weight.dtype, device=weight.device)
    ends = _Ends(rank, num_stages, config.hidden_size, weight, group)
    model, texts = CachedGPT(stage, cache), [list[int]() for _ in requests]
    for number in range(max(request.max_new_tokens for request in requests)):
        for members in groups:
            alive = [n for n in members if requests[n].max_new_tokens > number]
            if alive:
                _one_token(model, ends, requests, texts, alive, number)
    ends.close()
    return texts if ends.is_last else None


def _one_token(
    model: CachedGPT,
    ends: _Ends,
    requests: Sequence[GenerationRequest],
    texts: list[list[int]],
    alive: list[int],
    number: int,
) -> None:
    """Do this stage's part of token `number` of a group."""
    if number == 0:
        for n in alive:  # prompts have different lengths: one by one
            x, positions, slots = prompt_inputs(model, requests[n], n)
            out = _one_pass(model, ends, x, positions, slots)
            texts[n].append(next_token(out[0], requests[n], 0) if ends.is_last else 0)
    else:
        if ends.is_first and not ends.is_last:
            for n, token in zip(alive, ends.receive_tokens(len(alive)), strict=True):
                texts[n][-1] = token
        own = [texts[n] for n in alive]
        x, positions, slots = last_token_inputs(model, [requests[n] for n in alive], own, alive)
        out = _one_pass(model, ends, x, positions, slots)
        for row, n in enumerate(alive):
            texts[n].append(next_token(out[row], requests[n], number) if ends.is_last else 0)
    back = [texts[n][-1] for n in alive if requests[n].max_new_tokens > number + 1]
    if ends.is_last and not ends.is_first and back:
        ends.send_tokens(back)


def _one_pass(
    model: CachedGPT, ends: _Ends, x: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
) -> torch.Tensor:
    """Run this stage: from tokens, or what the stage before sends, to logits, or to outputs for the next stage."""
    x = x if ends.is_first else ends.receive_activations(*positions.shape)  # (B, T), or (B, T, C)
    with phase("pass"):
        out = model(x, positions, slots)
    if not ends.is_last:
        ends.send_activations(out)
    return out


class _Ends:
    """Where a stage receives and sends.

    Sends are not waited for, or the first stage, which sends before it receives, and the last one, which does so too,
    could wait for each other. A tensor that is being sent is kept until it has arrived.
    """

    def __init__(
        self, rank: int, num_stages: int, hidden_size: int, like: torch.Tensor, group: dist.ProcessGroup | None
    ) -> None:
        self.is_first, self.is_last = rank == 0, rank == num_stages - 1
        self.rank, self.num_stages, self.group = rank, num_stages, group
        self._hidden_size, self._like = hidden_size, like
        self._under_way: list[tuple[dist.Work, torch.Tensor]] = []

    def receive_activations(self, texts: int, tokens: int) -> torch.Tensor:
        x = self._like.new_empty(texts, tokens, self._hidden_size)  # (B, T, C)
        dist.recv(x, group=self.group, group_src=self.rank - 1)
        return x

    def send_activations(self, x: torch.Tensor) -> None:
        self._send(x.contiguous(), self.rank + 1)

    def receive_tokens(self, texts: int) -> list[int]:
        tokens = torch.empty(texts, dtype=torch.int64, device=self._like.device)  # (B,)
        dist.recv(tokens, group=self.group, group_src=self.num_stages - 1)
        received: list[int] = tokens.tolist()
        return received

    def send_tokens(self, tokens: list[int]) -> None:
        self._send(torch.tensor(tokens, device=self._like.device), 0)

    def _send(self, tensor: torch.Tensor, to: int) -> None:
        work = dist.isend(tensor, group=self.group, group_dst=to)
        assert work is not None
        self._under_way.append((work, tensor))
        while self._under_way and self._under_way[0][0].is_completed():
            self._under_way.pop(0)[0].wait()

    def close(self) -> None:
        """Wait until everything that was sent has arrived."""
        for work, _ in self._under_way:
            work.wait()
