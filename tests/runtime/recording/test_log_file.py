"""Lines are written whole or not at all, and a full disk is a fault that is told once."""

import os

from dtlearn.runtime.recording.log_file import LogFile


def test_lines_are_there_at_once_and_the_file_is_made_with_the_first(tmp_path):
    path = tmp_path / "log"
    log = LogFile(path)
    assert not path.exists()
    log.write("one\n")
    assert path.read_text() == "one\n"
    log.write("two\n")
    assert path.read_text() == "one\ntwo\n"
    assert log.fault == ""


def test_it_goes_on_in_another_file_under_the_same_descriptor(tmp_path):
    log = LogFile(tmp_path / "a")
    log.write("one\n")
    number = log._descriptor
    log.move(tmp_path / "b")
    log.write("two\n")
    assert log._descriptor == number
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "b").read_text() == "two\n"
    os.close(number)


def test_a_device_that_is_full_is_a_fault_once_and_raises_nothing(tmp_path):
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    heard = []
    log = LogFile(path, heard.append)
    for _ in range(3):
        log.write("a line\n")
    assert heard == [log.fault] == ["No space left on device"]


def test_a_line_that_was_cut_is_the_last(tmp_path, monkeypatch):
    path, write = tmp_path / "log", os.write
    log = LogFile(path)
    log.write("whole\n")
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    log.write("cut off\n")
    monkeypatch.undo()
    log.write("never\n")
    assert path.read_text() == "whole\ncut"
    assert log.fault == "No space left on device"


def test_after_a_fault_the_next_file_is_tried_again(tmp_path):
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    log = LogFile(full)
    log.write("lost\n")
    log.move(tmp_path / "next")
    log.write("kept\n")
    assert log.fault == "" and (tmp_path / "next").read_text() == "kept\n"


def test_a_folder_that_is_gone_is_a_fault(tmp_path):
    log = LogFile(tmp_path / "gone" / "log")
    log.write("lost\n")
    assert log.fault == "No such file or directory"
