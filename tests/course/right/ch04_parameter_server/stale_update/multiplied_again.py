def stale_update(server, worker, gradients, pulled):
    if pulled not in range(server.version + 1):
        raise ValueError(f"expected a version up to {server.version}, and got {pulled}")
    factor = server.version + 1 - pulled
    for parameter, gradient in zip(server.parameters, gradients, strict=True):
        parameter.grad = gradient
    for group in server.optimizer.param_groups:
        group["lr"] /= factor
    server.optimizer.step()
    for group in server.optimizer.param_groups:
        group["lr"] *= factor
    server.version += 1
    server.log = [
        *server.log,
        {"worker": worker, "pulled": pulled, "applied": server.version, "staleness": factor - 1},
    ]
