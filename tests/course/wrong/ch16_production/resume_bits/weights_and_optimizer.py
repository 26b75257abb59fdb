# expect: DTL-MISTAKE
# says: the scheduler is not saved

import copy


class resume_bits:
    """What most tutorials save."""

    def save(self, job):
        return copy.deepcopy(
            ({"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict(), "step": job.step}, {})
        )

    def load(self, job, shared, own):
        job.model.load_state_dict(shared["model"])
        job.optimizer.load_state_dict(shared["optimizer"])
        job.step = shared["step"]
