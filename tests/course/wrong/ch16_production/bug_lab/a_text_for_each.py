# expect: DTL-VALUE-TYPE
# says: expected a dict with the keys "ranks", "line" and "cause"


def bug_lab(program):
    """Says it in words."""
    return f"in {program} rank 0 calls a collective that the others do not call"
