# expect: DTL-DIFFICULTY
# says: is refused, and changes nothing


def stale_update(server, worker, gradients, pulled):
    staleness = server.version - pulled
    groups = server.optimizer.param_groups
    rates = [group["lr"] for group in groups]
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate / (1 + max(0, staleness))
    for parameter, gradient in zip(server.parameters, gradients, strict=True):
        parameter.grad = gradient
    server.optimizer.step()
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    if staleness < 0:
        raise ValueError(f"version {pulled} is still to come: the server has {server.version}")
    server.version += 1
    server.log.append({"worker": worker, "pulled": pulled, "applied": server.version, "staleness": staleness})
