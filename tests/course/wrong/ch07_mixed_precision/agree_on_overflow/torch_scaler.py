# expect: DTL-RULE-NAME
# says: uses torch.amp.GradScaler

import torch


def agree_on_overflow(gradients):
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients if g is not None]
    for parameter, gradient in zip(parameters, (g for g in gradients if g is not None), strict=True):
        parameter.grad = gradient.clone()
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    optimizer = torch.optim.SGD(parameters or [torch.zeros(1)], lr=0.0)
    scaler.scale(torch.ones(()))
    scaler.unscale_(optimizer)
    return any(scaler._found_inf_per_device(optimizer).values())
