from dataclasses import replace

from dtlearn.grading.classroom.summary import BANDS, summarise, summary_console


def test_golden(a_class, golden):
    golden("class.summary.txt", summary_console(summarise(a_class, meanings={})))


def test_counts(a_class):
    summary = summarise(a_class, meanings={})
    (one,) = summary.exercises
    assert (summary.submissions, one.submissions, one.passed) == (6, 6, 1)
    assert one.codes[0][:3] == ("DTL-COLL-SKIP", 2, "a collective that not all ranks call")
    assert sum(n for _, n, *_ in one.codes) == 4  # the grader's own fault is nobody's
    assert dict(zip(BANDS, one.bands, strict=True)) == {
        **{"0": 3, "below 25 %": 0, "25 to 50 %": 0, "50 to 75 %": 1, "75 to 99 %": 0, "all": 1}
    }
    assert one.tiers == (("optimal", 1),)
    assert [person[0] for person in summary.needs_a_person] == ["eve"]


def test_bands(verdicts):
    def band(score):
        made = summarise({"x": [replace(verdicts["value"], score=score)]}, meanings={})
        return BANDS[made.exercises[0].bands.index(1)]

    assert [band(s) for s in (0, 0.1, 1.25, 2.5, 3.75, 4.99, 5)] == [
        *("0", "below 25 %", "25 to 50 %", "50 to 75 %", "75 to 99 %", "75 to 99 %", "all")
    ]


def test_an_empty_class():
    assert summary_console(summarise({}, meanings={})) == "0 submissions, 0 exercises\n"


def test_hostile(hostile, harmless):
    text = summary_console(
        summarise({"\x1b[31m/home/ada/x\ud800": [hostile, replace(hostile, state="error")]}, meanings={})
    )
    harmless(text)
    assert max(map(len, text.splitlines())) <= 80


def test_what_only_a_chapter_knows_is_told_by_the_caller(verdicts):
    fault = replace(verdicts["value"].first_fault, code="DTL-VALUE-SUMMED")
    a_class = {"ada": [replace(verdicts["value"], results=(fault,))]}
    told = [
        summarise(a_class, meanings=meanings).exercises[0].codes for meanings in ({}, {"DTL-VALUE-SUMMED": "a sum"})
    ]
    said = fault.headline
    assert told == [(("DTL-VALUE-SUMMED", 1, "wrong values", said),), (("DTL-VALUE-SUMMED", 1, "a sum", said),)]
