from dtlearn.runtime.record.intervals import length, union, without


def test_intervals():
    assert union([(5, 6), (0, 2), (1, 3), (3, 4), (7, 7)]) == [(0, 4), (5, 6)]
    assert union([(0, 1), (2, 3)], gap=1) == [(0, 3)]
    assert without([(0, 10)], [(2, 3), (5, 12)]) == [(0, 2), (3, 5)]
    assert without([(0, 1), (4, 5)], [(-1, 9)]) == []
    assert length([(0, 2), (1, 3), (5, 6)]) == 4
