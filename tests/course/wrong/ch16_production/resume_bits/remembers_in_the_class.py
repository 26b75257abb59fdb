# expect: DTL-RAISED
# says: cannot unpack non-iterable NoneType

import copy
import random

import torch

PARTS = ("model", "optimizer", "scheduler", "scaler", "sampler")


class resume_bits:
    """Keeps all in the class, of which a new process has another one."""

    kept = None

    def save(self, job):
        states = [getattr(job, part).state_dict() for part in PARTS]
        own = job.residual, torch.get_rng_state(), random.getstate()
        resume_bits.kept = copy.deepcopy((states, job.step, own))
        return {}, {}

    def load(self, job, shared, own):
        states, job.step, (job.residual, masks, flips) = self.kept
        for part, state in zip(PARTS, states, strict=True):
            getattr(job, part).load_state_dict(state)
        torch.set_rng_state(masks)
        random.setstate(flips)
