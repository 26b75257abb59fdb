# expect: DTL-RULE-NAME
# says: run programs in another cell

from dtlearn.production import bug_lab as lab


def bug_lab(program):
    """Prints the diagnosis first."""
    print(lab.run_program(program))
    return {"sharded_save": {"ranks": [1, 2], "line": 21, "cause": "rank decides"}}.get(program)
