"""The bug-hunt lab: ten programs with a fault each, of kinds that public projects had and fixed.

In this order: `lab_program` says what the programs are, whose texts lie in `programs/`; `run_program` runs one and
keeps what can be seen; `causes` are what to choose from. What is wrong with a program stands nowhere here.
"""

from .causes import CAUSES
from .lab_program import PROGRAMS, LabProgram
from .run_program import LabRun, run_program, run_text

__all__ = ["CAUSES", "PROGRAMS", "LabProgram", "LabRun", "run_program", "run_text"]
