import random

import torch


def cloned(state):
    """The same with new tensors."""
    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: cloned(value) for key, value in state.items()}
    return type(state)(map(cloned, state)) if isinstance(state, list | tuple) else state


class resume_bits:
    def save(self, job):
        """Numbers by hand where there are few, and lists in the place of dicts."""
        version, words, gauss = random.getstate()
        own = {"owed": job.residual.tolist(), "masks": torch.get_rng_state(), "flips": [version, list(words), gauss]}
        shared = {
            "states": [job.model.state_dict(), job.optimizer.state_dict(), job.scheduler.state_dict()],
            "scale": job.scaler.state_dict(),
            "place": job.sampler.state_dict(),
            "steps": job.step,
        }
        return cloned(shared), own

    def load(self, job, shared, own):
        version, words, gauss = own["flips"]
        random.setstate((version, tuple(words), gauss))
        torch.random.set_rng_state(own["masks"])
        with torch.no_grad():
            job.residual.copy_(torch.tensor(own["owed"]))
        for part, state in zip((job.model, job.optimizer, job.scheduler), shared["states"], strict=True):
            part.load_state_dict(state)
        job.scaler.load_state_dict(shared["scale"])
        job.sampler.load_state_dict(shared["place"])
        job.step = shared["steps"]
