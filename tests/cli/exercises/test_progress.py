from dtlearn import cli


def test_the_board_is_printed(course, capsys):
    assert cli.main(["progress"]) == cli.OK
    said = capsys.readouterr().out
    assert said.startswith("0 of 1 exercises passed, 0 of 4 points\n")
    assert "ch01.average" in said and "not started" in said and "0 of 3" in said
