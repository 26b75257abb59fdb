# expect: DTL-VALUE-FAULT
# says: another rank has wrong calls or values, too
# says: the line and the cause are right


def bug_lab(program):
    """Names one of the ranks that leave a call out, and has looked at one program only."""
    return {"ranks": {1}, "line": 22, "cause": "rank decides"} if program == "sharded_save" else None
