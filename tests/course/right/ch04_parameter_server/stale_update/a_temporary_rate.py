import contextlib


@contextlib.contextmanager
def rates_divided_by(optimizer, number):
    before = [group["lr"] for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] / number
        yield
    finally:
        for group, lr in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = lr


def stale_update(server, worker, gradients, pulled):
    staleness = server.version - pulled
    if staleness < 0:
        raise ValueError(f"the server has version {server.version}; version {pulled} is still to come")
    server.optimizer.zero_grad()
    for parameter, gradient in zip(server.parameters, gradients, strict=True):
        if gradient is not None:
            parameter.grad = gradient.clone()
    with rates_divided_by(server.optimizer, 1 + staleness):
        server.optimizer.step()
    server.log.append(dict(worker=worker, pulled=pulled, applied=server.version + 1, staleness=staleness))
    server.version += 1
