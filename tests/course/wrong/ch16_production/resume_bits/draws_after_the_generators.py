# expect: DTL-DIFFICULTY
# says: dropout goes on with other masks

import copy
import random

import torch

PARTS = ("model", "optimizer", "scheduler", "scaler", "sampler")


class resume_bits:
    """Restores the generators first, and tries the new model out afterwards, which draws a mask."""

    def save(self, job):
        shared = {"step": job.step, **{part: vars(job)[part].state_dict() for part in PARTS}}
        own = {"rng": [torch.get_rng_state(), random.getstate()], "residual": job.residual}
        return copy.deepcopy(shared), copy.deepcopy(own)

    def load(self, job, shared, own):
        torch.set_rng_state(own["rng"][0])
        random.setstate(own["rng"][1])
        for part in PARTS:
            vars(job)[part].load_state_dict(shared[part])
        job.step = shared["step"]
        job.residual.copy_(own["residual"])
        with torch.no_grad():
            assert job.model(job.x).isfinite().all()
