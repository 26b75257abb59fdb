# expect: DTL-MISTAKE
# says: gradients: 18 and 20 are taken for each other


def adam_state(named_parameters, groups, convention):
    """The gradients of 18 and of 20 are exchanged, and frozen parameters have a state."""
    every = {id(p): p for _, p in named_parameters}
    stepped = {id(p) for group in groups for p in group["params"]}
    gradient = {16: 2, 18: 6, 20: 4}[convention]
    weights = gradients = state = 0
    for key, p in every.items():
        n, half = p.numel(), p.itemsize == 2
        weights += n * p.itemsize
        gradients += n * (gradient if half else 4) * p.requires_grad
        state += n * (12 if half else 8) * (key in stepped)
    return {"parameters": weights, "gradients": gradients, "optimizer state": state}
