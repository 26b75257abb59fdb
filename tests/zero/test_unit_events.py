"""Verbs that are written down, when they do something."""

from itertools import pairwise

from dtlearn.zero.unit_events import record_units


class Unit:
    name, is_unsharded = "u", False

    def unshard(self):
        self.is_unsharded = True

    def wait_for_unshard(self):
        pass

    def to_sharded(self):
        pass

    def reshard(self):
        self.to_sharded()
        self.is_unsharded = False

    def reduce_gradients(self):
        return ["under way"]


def test_what_happens_to_a_unit_is_in_the_list():
    unit = Unit()
    events = record_units([unit])
    unit.reshard()  # nothing to free
    for _ in range(2):
        unit.unshard()
        unit.unshard()  # prefetched before
        unit.wait_for_unshard()
        unit.reshard()
    assert unit.reduce_gradients() == ["under way"]
    one_pass = ["unshard", "wait_for_unshard", "computed", "reshard"]
    assert [event.what for event in events] == [*one_pass, *one_pass, "reduce"]
    assert {event.unit for event in events} == {"u"} and all(a.ns <= b.ns for a, b in pairwise(events))
