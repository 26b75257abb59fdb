# expect: DTL-RAISED
# says: `parameter in a_list` and == compare the elements of tensors


def adam_state(named_parameters, groups, convention):
    every = list(dict(named_parameters).values())
    per_gradient = {16: 2, 18: 4, 20: 6}[convention]
    found = {"parameters": 0, "gradients": 0, "optimizer state": 0}
    counted = []
    for p in every:
        if p in counted:
            continue
        counted.append(p)
        half = p.element_size() == 2
        found["parameters"] += p.numel() * p.element_size()
        if p.requires_grad:
            found["gradients"] += p.numel() * (per_gradient if half else 4)
            if any(p is q for group in groups for q in group["params"]):
                found["optimizer state"] += p.numel() * (12 if half else 8)
    return found
