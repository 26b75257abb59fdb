from dtlearn.cli.doctor.check import Line, attempt


def test_a_finding_is_passed_on():
    check = Line("cores", "ok", "4")
    assert attempt("cores", lambda: check) is check


def test_a_check_that_fails_is_a_note_and_no_crash():
    assert attempt("cores", lambda: 1 / 0) == Line(
        "cores", "note", "could not be checked (ZeroDivisionError: division by zero)"
    )
