import io
import random

import torch

NAMES = ["model", "optimizer", "scheduler", "scaler", "sampler"]


def frozen(state):
    """A state as a tensor of bytes, which nobody changes."""
    file = io.BytesIO()
    torch.save(state, file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def thawed(data):
    return torch.load(io.BytesIO(bytes(data.tolist())), weights_only=True)


class resume_bits:
    """Freezes both at once."""

    def save(self, job):
        states = {name: getattr(job, name).state_dict() for name in NAMES}
        own = [job.residual, torch.get_rng_state(), random.getstate()]
        return {"all": frozen([states, job.step])}, {"mine": frozen(own)}

    def load(self, job, shared, own):
        states, job.step = thawed(shared["all"])
        job.residual, masks, flips = thawed(own["mine"])
        for name, state in states.items():
            getattr(job, name).load_state_dict(state)
        torch.set_rng_state(masks)
        random.setstate(flips)
