# expect: DTL-DIFFICULTY
# says: each group of the optimizer has a rate of its own


def stale_update(server, worker, gradients, pulled):
    if pulled > server.version:
        raise ValueError(f"version {pulled} is still to come: the server has {server.version}")
    staleness = server.version - pulled
    rate = sum(group["lr"] for group in server.optimizer.param_groups) / len(server.optimizer.param_groups)
    before = [group["lr"] for group in server.optimizer.param_groups]
    for group in server.optimizer.param_groups:
        group["lr"] = rate / (1 + staleness)
    for parameter, gradient in zip(server.parameters, gradients, strict=True):
        parameter.grad = gradient
    server.optimizer.step()
    for group, own in zip(server.optimizer.param_groups, before, strict=True):
        group["lr"] = own
    server.version += 1
    server.log.append({"worker": worker, "pulled": pulled, "applied": server.version, "staleness": staleness})
