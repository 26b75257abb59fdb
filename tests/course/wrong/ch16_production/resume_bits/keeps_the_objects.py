# expect: DTL-RAISED
# says: save() returned more than numbers, texts, tensors

import copy
import random

import torch


class resume_bits:
    """Saves whole objects, which a file cannot give back without running their code."""

    def save(self, job):
        own = {"residual": job.residual.clone(), "rng": (torch.get_rng_state(), random.getstate())}
        return {"job": copy.deepcopy((job.model, job.optimizer, job.scheduler, job.scaler, job.sampler, job.step))}, own

    def load(self, job, shared, own):
        job.model, job.optimizer, job.scheduler, job.scaler, job.sampler, job.step = shared["job"]
        job.residual = own["residual"]
        torch.set_rng_state(own["rng"][0])
        random.setstate(own["rng"][1])
