# expect: DTL-VALUE
# says: result['own has, alike on all ranks']

import copy
import random

import torch

PARTS = ("optimizer", "scheduler", "scaler", "sampler")


class resume_bits:
    """Each rank saves the model, as a list of numbers."""

    def save(self, job):
        parameters = torch.nn.utils.parameters_to_vector(job.model.parameters())
        model = [parameters.detach().tolist(), job.model.average.tolist()]
        own = {"all": [model, job.residual, torch.get_rng_state(), random.getstate()]}
        return copy.deepcopy(({part: getattr(job, part).state_dict() for part in PARTS} | {"at": job.step}, own))

    def load(self, job, shared, own):
        model, job.residual, masks, flips = own["all"]
        torch.nn.utils.vector_to_parameters(torch.tensor(model[0]), job.model.parameters())
        job.model.average.copy_(torch.tensor(model[1]))
        for part in PARTS:
            getattr(job, part).load_state_dict(shared[part])
        job.step = shared["at"]
        torch.set_rng_state(masks)
        random.setstate(flips)
