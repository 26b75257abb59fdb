"""What ch08.checkpoint's chain leads to without a checkpoint, on all ranks in one graph."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Given


def whole(given: Given, aside: bool = True) -> list[dict[str, Any]]:
    """By rank, values and gradients without a checkpoint: the chains of all ranks are one graph.

    `aside`: the loss has more than the last result in it.
    """
    kinds, loss = given[0]["kinds"], torch.zeros(())
    made = [torch.Generator().manual_seed(i["seed"]) for i in given]
    leaves = [{name: i[name].clone().requires_grad_() for name in ("x", "down", "up", "gain")} for i in given]
    ys, labels = [leaf["x"] for leaf in leaves], [[] for _ in given]  # type: list[torch.Tensor], list[list[Any]]
    drawn: list[list[float]] = [[] for _ in given]
    for s in range(len(given[0]["down"])):
        parts = []
        for r, i in enumerate(given):
            h = torch.nn.functional.gelu(ys[r] @ leaves[r]["down"][s])
            if kinds["others"]:
                h = 0.5 * (h + i["bias"][i["index"]]) * leaves[r]["gain"].exp()
            if kinds["dropout"]:
                mask = (torch.rand(h.shape, generator=made[r]) < 0.7).float()
                drawn[r].append((mask * torch.arange(mask.numel()).view(mask.shape)).double().sum().item())
                h = h * mask
            if kinds["several"] and aside and s == 0:
                loss = loss + h.sum(1).mean()
            parts.append(h @ leaves[r]["up"][s])
        total = sum(parts)
        ys = [y + (total if kinds["collective"] else part) for y, part in zip(ys, parts, strict=True)]
        for r, y in enumerate(ys):
            labels[r] += [y.argmax(1)] * kinds["several"]
    (loss + sum(y.square().mean() for y in ys)).backward()
    found = []
    for r, leaf in enumerate(leaves):
        gradients = [[leaf["down"].grad[s], leaf["up"].grad[s]] for s in range(len(given[0]["down"]))]
        random = {"between": torch.rand(3, generator=made[r]), "after": torch.rand(3, generator=made[r])}
        x = leaf["x"].grad if kinds["leaf"] else None
        random |= {"gain": leaf["gain"].grad}
        found.append(
            {"y": ys[r].detach(), "labels": labels[r], "drawn": drawn[r], "gradients": gradients, "x": x, **random}
        )
    return found
