# expect: DTL-DIFFICULTY
# says: it is the same object. Another one may look like it


def adam_state(named_parameters, groups, convention):
    every = {(p.numel(), p.dtype, p.requires_grad): p for _, p in named_parameters}.values()
    stepped = {id(p) for group in groups for p in group["params"]}
    half = [p for p in every if p.element_size() == 2 and p.requires_grad]
    whole = [p for p in every if p.element_size() == 4 and p.requires_grad]
    per_gradient = {16: 2, 18: 4, 20: 6}[convention]
    return {
        "parameters": sum(p.nbytes for p in every),
        "gradients": sum(per_gradient * p.numel() for p in half) + sum(4 * p.numel() for p in whole),
        "optimizer state": sum(12 * p.numel() for p in half if id(p) in stepped)
        + sum(8 * p.numel() for p in whole if id(p) in stepped),
    }
