# expect: DTL-RAISED
# says: has no attribute 'rng'

import copy
import random

import torch


class resume_bits:
    """Keeps the generators in itself, and the new process has another one of it."""

    def save(self, job):
        self.rng = torch.get_rng_state(), random.getstate()
        shared = {
            "parts": [p.state_dict() for p in (job.model, job.optimizer, job.scheduler, job.scaler, job.sampler)],
            "step": job.step,
        }
        return copy.deepcopy(shared), {"residual": job.residual.clone()}

    def load(self, job, shared, own):
        for part, state in zip(
            (job.model, job.optimizer, job.scheduler, job.scaler, job.sampler), shared["parts"], strict=True
        ):
            part.load_state_dict(state)
        job.step = shared["step"]
        job.residual = own["residual"]
        torch.set_rng_state(self.rng[0])
        random.setstate(self.rng[1])
