# expect: DTL-VALUE-VICTIM
# says: sooner or later. Who uses it, and when?
# says: none of ranks, line and cause is right yet

RIGHT = {
    "sharded_save": {"ranks": [2, 1], "line": 21, "cause": "rank decides"},
    "detector_logs": {"ranks": [2], "line": 12, "cause": "data decide"},
    "codebook": {"ranks": [0, 1], "line": 14, "cause": "a copy"},
    "cache_groups": {"ranks": [0, 1, 2, 3], "line": 11, "cause": "groups"},
    "loss_log": {"ranks": [0, 1], "line": 18, "cause": "too often"},
    "checkpoint_thread": {"ranks": [0, 1], "line": 26, "cause": "changed meanwhile"},
    "pipeline_pairs": {"ranks": [2, 3], "line": 15, "cause": "wrong peer"},
    "loss_metric": {"ranks": [0, 1, 2, 3], "line": 14, "cause": "too much"},
    "resumed_dropout": {"ranks": [1, 2], "line": 20, "cause": "one for all"},
}


def bug_lab(program):
    """All right but one: a rank that is late is taken for the fault."""
    return RIGHT.get(program, {"ranks": [1], "line": 15, "cause": "straggler"})
