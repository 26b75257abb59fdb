# expect: DTL-VALUE-NONE
# says: no fault of codebook is named yet


def bug_lab(program):
    """Right, as far as it goes."""
    known = {
        "sharded_save": {"ranks": [1, 2], "line": 21, "cause": "rank decides"},
        "detector_logs": {"ranks": [2], "line": 12, "cause": "data decide"},
    }
    return known.get(program)
