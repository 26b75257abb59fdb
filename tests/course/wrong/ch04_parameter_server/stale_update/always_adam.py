# expect: DTL-VALUE
# says: parameters

import torch


def stale_update(server, worker, gradients, pulled):
    if pulled > server.version:
        raise ValueError(f"version {pulled} is still to come: the server has {server.version}")
    staleness = server.version - pulled
    rate = server.optimizer.param_groups[0]["lr"] / (1 + staleness)
    for parameter, gradient in zip(server.parameters, gradients, strict=True):
        parameter.grad = gradient
    torch.optim.Adam(server.parameters, lr=rate).step()
    server.version += 1
    server.log.append({"worker": worker, "pulled": pulled, "applied": server.version, "staleness": staleness})
