"""Lines of a call log as the recorder writes them, for tests."""

import json

CALL = {
    "op": "all_reduce",
    "group": "world",
    "nbytes": 4,
    "dtype": "float32",
    "shape": [1],
    "peer": None,
    "detail": {},
    "asynchronous": False,
    "file": "cell.py",
    "line": 1,
    "code": "",
    "start_ns": 1,
}


def write(path, *lines):
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def call(seq, **changes):
    return {**CALL, "seq": seq, "group_seq": seq, **changes}
