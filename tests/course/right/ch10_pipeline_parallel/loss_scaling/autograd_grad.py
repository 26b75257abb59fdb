import torch


def loss_scaling(stage, activations, targets, loss_fn):
    rows = [target.shape[0] for target in targets]
    parameters, sent_back, batch_loss = list(stage.parameters()), [], 0.0
    for k, n in enumerate(rows):
        activations[k].requires_grad_(True)
        loss = n * loss_fn(stage(activations[k]), targets[k])
        back, *gradients = torch.autograd.grad(loss, [activations[k], *parameters])
        sent_back.append(back / sum(rows))
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient / sum(rows) if p.grad is None else p.grad + gradient / sum(rows)
        batch_loss += float(loss) / sum(rows)
    return sent_back, batch_loss
