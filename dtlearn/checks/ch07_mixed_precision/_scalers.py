"""torch's own loss scalers, which answers of this chapter may not use where they would be the answer."""

_WHY = "it decides by itself; write that decision here"
TORCH_SCALERS = dict.fromkeys(
    (
        "torch.amp.GradScaler",
        "torch.amp.grad_scaler",
        "torch.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.cuda.amp.grad_scaler",
        "torch.cpu.amp.GradScaler",
        "torch.distributed.fsdp.sharded_grad_scaler",
    ),
    _WHY,
)
