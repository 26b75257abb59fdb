"""Checks of chapter 7."""

from ..own_work import forbids

READS = [forbids("dtlearn.mixed_precision", "dtlearn.sharing")]  # rules on the text of every answer
# torch's own loss scalers, which answers may not use where they would be the answer.
_WHY_OWN = "it decides by itself; write that decision here"
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
    _WHY_OWN,
)
