"""Faults on real processes: a rank is killed, hangs, runs out of memory, or computes wrong; a node is lost.

In this order: `story` is what a scenario leaves behind; `plants` are the faults; `plan`, `work` and `job` are the job
that they strike; `heartbeat`, `flight` and `replay` notice them; `on_run_ranks`, `on_torchrun` and `two_hosts` start
the job again; `scenarios` puts it all together.
"""

from .flight import FlightCall, MissingCall, dump_trace, missing_calls, read_trace
from .heartbeat import Heartbeat, HeartbeatMonitor, host_store
from .plan import JobPlan
from .plants import Plant
from .replay import checksum, compare_by_replay, compare_replicas, outvoted, wrong_ranks
from .scenarios import SCENARIOS, Scenario, detection_times, run_scenario
from .story import Detection, FaultStory, StoryEvent
from .two_hosts import why_not

__all__ = [
    "SCENARIOS",
    "Detection",
    "FaultStory",
    "FlightCall",
    "Heartbeat",
    "HeartbeatMonitor",
    "JobPlan",
    "MissingCall",
    "Plant",
    "Scenario",
    "StoryEvent",
    "checksum",
    "compare_by_replay",
    "compare_replicas",
    "detection_times",
    "dump_trace",
    "host_store",
    "missing_calls",
    "outvoted",
    "read_trace",
    "run_scenario",
    "why_not",
    "wrong_ranks",
]
