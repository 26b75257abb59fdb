"""Local SGD: steps alone, and the mean of the parameters after every H of them.

Source: Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. Averaging of parameters by many workers
is older: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017 (federated averaging).
"""

from __future__ import annotations

from .local_steps import LocalSteps
from .mean import average_buffers, average_tensors


class PeriodicAveraging(LocalSteps):
    """The mean of the parameters after every `period` steps; see `LocalSteps` for how it is used.

    With `period` 1 and SGD, also with momentum, it is data parallelism: the step is linear in the gradient, so the mean
    of the steps is the step of the mean, if all begin as one. Adam's is not linear, and it is something else.

    torch's `PeriodicModelAverager(H, warmup_steps=H - 1)` averages after the same steps, to the last bit. It leaves out
    parameters that have no gradient at that moment; here all that are trained are averaged, whoever has a gradient,
    since ranks that leave out different ones would add up what does not belong together.

    **Communication** (n bytes of parameters): every `period` steps one all-reduce of n, where data parallelism has one
    in each; and the buffers, see `average_buffers`.
    **Memory**: n while it averages.
    """

    def synchronize(self) -> None:
        average_tensors(self.parameters, group=self.group)
        average_buffers(self.module, group=self.group)
