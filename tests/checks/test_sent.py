from dtlearn.checks.sent import no_silent_rank, no_stores
from dtlearn.grading import Case
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record


def event(rank, nbytes):
    return Event(rank, 0, "all_reduce", "world", 0, nbytes, "float32", (1,), None, {}, 0, 1, False, "answer.py", 3)


def judged(per_rank, **limits):
    """What the rule says of ranks that make calls with these bytes."""
    events = tuple(event(rank, nbytes) for rank, calls in enumerate(per_rank) for nbytes in calls)
    rule = no_silent_rank(**{name: lambda case, given, most=most: most for name, most in limits.items()})
    return rule(Case("a case", len(per_rank), 1), [], Record(len(per_rank), events))


def test_a_rank_that_sends_nothing_is_found():
    assert judged([[4, 4], [4, 4]], least_calls=2) is None
    found = judged([[4, 4], [4, 0]], least_calls=2)  # a barrier carries no data
    assert found is not None and (found.code, found.rank) == ("DTL-RULE-CALLS", 1)
    assert "rank 1 made 1 calls of torch.distributed with data in this case, and at least 2 would" in found.text


def test_bytes_that_are_missing_are_found():
    assert judged([[600, 400], [1000]], least_bytes=1000) is None
    found = judged([[600, 400], [900]], least_bytes=1000)
    assert (
        found is not None
        and "rank 1 sent 900 bytes through torch.distributed in this case, and at least 1,000 would" in found.text
    )


def test_one_rank_has_nobody_to_send_to():
    assert judged([[]], least_calls=2, least_bytes=1000) is None


def test_a_store_is_found_in_the_text():
    found = no_stores("from torch.distributed import TCPStore\nTCPStore('localhost', 1)")
    assert found is not None and (found.code, found.line) == ("DTL-RULE-NAME", 1)
    assert "what goes through the store is not counted" in found.text
    assert no_stores("import torch.distributed as dist\ndist.all_reduce(x)") is None
