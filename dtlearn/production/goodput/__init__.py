"""Goodput: the part of a job's time that trains, by formula, by simulation, and measured on ranks that die.

In this order: `intervals` has the formulas; `life` is a job's time as data; `simulate` and `real` make such lives.
"""

from .intervals import daly_interval, expected_goodput, young_interval
from .life import JobLife, LifeSpan
from .real import LivedJob, draw_deaths, life_of, live
from .simulate import IntervalRow, JobTimes, goodput_by_interval, simulate

__all__ = [
    "IntervalRow",
    "JobLife",
    "JobTimes",
    "LifeSpan",
    "LivedJob",
    "daly_interval",
    "draw_deaths",
    "expected_goodput",
    "goodput_by_interval",
    "life_of",
    "live",
    "simulate",
    "young_interval",
]
