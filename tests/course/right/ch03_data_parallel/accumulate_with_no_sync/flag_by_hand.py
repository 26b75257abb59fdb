def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    count = sum(y.numel() for _, y in micro_batches)
    for i, (x, y) in enumerate(micro_batches):
        model.require_backward_grad_sync = i + 1 == len(micro_batches)
        out = model(x)
        out.backward(2 * (out.detach() - y) / count)
