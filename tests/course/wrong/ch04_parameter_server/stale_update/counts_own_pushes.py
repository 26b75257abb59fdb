# expect: DTL-DIFFICULTY
# says: divided by 1 + the number of updates between the pull and the push


def stale_update(server, worker, gradients, pulled):
    if pulled > server.version:
        raise ValueError(f"version {pulled} is still to come: the server has {server.version}")
    # The pushes of others since this worker's last one.
    staleness = 0
    for entry in reversed(server.log):
        if entry["worker"] == worker:
            break
        staleness += 1
    rates = [group["lr"] for group in server.optimizer.param_groups]
    for group in server.optimizer.param_groups:
        group["lr"] /= 1 + staleness
    for parameter, gradient in zip(server.parameters, gradients, strict=True):
        parameter.grad = gradient
    server.optimizer.step()
    for group, rate in zip(server.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    server.version += 1
    server.log.append({"worker": worker, "pulled": pulled, "applied": server.version, "staleness": staleness})
