"""One sum per category, with sets of parameters; the dtype says whether a parameter needs a master."""

import torch


def adam_state(named_parameters, groups, convention):
    every = set(dict(named_parameters).values())
    trained = {p for p in every if p.requires_grad}
    stepped = trained & {p for group in groups for p in group["params"]}
    half = {p for p in every if p.dtype in (torch.bfloat16, torch.float16)}

    def elements(parameters):
        return sum(p.numel() for p in parameters)

    wide = 0 if convention == 16 else 4
    narrow = 0 if convention == 18 else 2
    return {
        "parameters": sum(p.nbytes for p in every),
        "gradients": (wide + narrow) * elements(trained & half) + 4 * elements(trained - half),
        "optimizer state": 12 * elements(stepped & half) + 8 * elements(stepped - half),
    }
