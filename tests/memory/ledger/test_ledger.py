"""The ledger over whole steps: every category, to the byte."""

import torch
from torch import nn

from dtlearn.memory import MemoryLedger


def test_a_step_of_a_linear_layer_by_hand():
    torch.manual_seed(0)
    model = nn.Linear(10, 5)  # 55 parameters, 220 bytes
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    inputs = torch.randn(8, 10)  # 320 bytes
    with MemoryLedger(model, optimizer, inputs=inputs) as ledger:
        assert ledger.now == 220 + 320
        with ledger.phase("forward"):
            outputs = model(inputs)  # 8 x 5: 160 bytes
            loss = (outputs * outputs).sum()
        with ledger.phase("backward"):
            loss.backward()
        with ledger.phase("step"):
            optimizer.step()
        with ledger.phase("zero_grad"):
            optimizer.zero_grad()
    record = ledger.record()
    ends = {phase.name: {name: live[phase.stop] for name, live in record.timeline().items()} for phase in record.phases}
    always = {"parameters": 220, "inputs": 320, "buffers": 0, "communication": 0}
    loss_bytes = {"activations": 160, "temporaries": 4}  # `outputs` is a variable here, so it stays
    assert ends == {
        "forward": {**always, **loss_bytes, "gradients": 0, "optimizer state": 0},
        "backward": {**always, **loss_bytes, "gradients": 220, "optimizer state": 0},
        "step": {**always, **loss_bytes, "gradients": 220, "optimizer state": 220},
        "zero_grad": {**always, **loss_bytes, "gradients": 0, "optimizer state": 220},
    }
    assert record.live()[-1] == ledger.now and record.peak.bytes == ledger.peak
