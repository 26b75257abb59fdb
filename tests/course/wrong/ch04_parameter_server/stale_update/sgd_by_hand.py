# expect: DTL-DIFFICULTY
# says: it is the optimizer that steps

import torch


def stale_update(server, worker, gradients, pulled):
    if pulled > server.version:
        raise ValueError(f"version {pulled} is still to come: the server has {server.version}")
    staleness = server.version - pulled
    with torch.no_grad():
        for parameter, gradient in zip(server.parameters, gradients, strict=True):
            if gradient is not None:
                parameter -= server.optimizer.param_groups[0]["lr"] / (1 + staleness) * gradient
    server.version += 1
    server.log.append({"worker": worker, "pulled": pulled, "applied": server.version, "staleness": staleness})
