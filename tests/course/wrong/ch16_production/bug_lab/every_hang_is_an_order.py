# expect: DTL-MISTAKE
# says: not 'other order': the calls differ, but how often

from dtlearn.production.bug_lab import PROGRAMS

RANKS = {"sharded_save": [1, 2], "detector_logs": [2], "cache_groups": [0, 1, 2, 3], "pipeline_pairs": [2, 3]}
LINES = {"sharded_save": 22, "detector_logs": 13, "cache_groups": 11, "pipeline_pairs": 15}


def bug_lab(program):
    """Takes the code DTL-COLL-ORDER for the cause."""
    if PROGRAMS[program].symptom == "hung":
        return {"ranks": RANKS[program], "line": LINES[program], "cause": "other order"}
    return {"ranks": [0], "line": 1, "cause": "own for each"}
