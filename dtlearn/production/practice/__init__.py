"""What the exercises of chapter 16 hand over: a disk that tells what a kill or a power cut leaves, and a small job.

In this order: `disk` has calls, and what is left of them; `stops` has ranks that save, and are stopped at a moment;
`job` is a job whose every part has to come back.
"""

from .disk import DiskCall, StoppedDisk, left_after
from .job import PracticeJob, PracticeOptions
from .stops import SaveRun, save_until

__all__ = ["DiskCall", "PracticeJob", "PracticeOptions", "SaveRun", "StoppedDisk", "left_after", "save_until"]
