import pytest

from dtlearn.grading.classroom.students import Student, read_students, student_of

TABLE = """submission,last_name,first_name,sis_login_id
ada,Lovelace,Ada,al1815
bo,"O'Neil, jr.",Bo,bo2
"""


def test_read():
    students = read_students("\ufeff" + TABLE)
    assert students["ada"] == Student("ada", "Lovelace", "Ada", sis_login_id="al1815")
    assert students["bo"].name == "O'Neil, jr., Bo"
    assert student_of("eve", students) == Student("eve")
    assert student_of("eve", students).name == "eve"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs a column `submission`"),
        ("name,email\na,b\n", "needs a column `submission`"),
        ("submission,mail\na,b\n", "a column 'mail'"),
        ("submission,email\na,b\na,c\n", "line 3.*'a' was there before"),
        ("submission,email\na\n", "line 2.*as many cells"),
        ("submission,email\na,b,c\n", "line 2.*as many cells"),
        ("submission,email\n,b\n", "line 2.*names no submission"),
        ("submission,email\na,=cmd|x\n", "line 2.*run by a spreadsheet"),
        ("submission,sis_user_id\na,-12\n", "line 2.*run by a spreadsheet"),
        ('submission,email\na,"b\n', "no CSV"),
    ],
)
def test_faults_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        read_students(text)
