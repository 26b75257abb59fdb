# expect: DTL-VALUE-VICTIM
# says: only waits
# says: the line and the cause are right

WHO_WAITS = {"sharded_save": (0, 21, "rank decides"), "detector_logs": (1, 12, "data decide")}


def bug_lab(program):
    """Names the rank that the diagnosis shows in the call."""
    if program in WHO_WAITS:
        rank, line, cause = WHO_WAITS[program]
        return {"ranks": [rank], "line": line, "cause": cause}
    return None
