"""Call logs that are copied from a node to the head while they are written."""

from dtlearn.runtime.lab.log_relay import LogReader, LogWriter


def pair(tmp_path):
    (tmp_path / "node").mkdir()
    (tmp_path / "head").mkdir()
    return LogReader(tmp_path / "node"), LogWriter(tmp_path / "head")


def test_what_is_new_is_copied_and_nothing_twice(tmp_path):
    reader, writer = pair(tmp_path)
    log, copy = tmp_path / "node" / "calls-0-1.jsonl", tmp_path / "head" / "calls-0-1.jsonl"
    (tmp_path / "node" / "other").write_text("no log")
    for text in ("one\n", "tw", "o\n"):
        with log.open("a") as file:
            file.write(text)
        reader.read(writer.take)
    reader.read(writer.take)
    assert copy.read_text() == "one\ntwo\n"
    assert [p.name for p in (tmp_path / "head").iterdir()] == ["calls-0-1.jsonl"]
    reader.close()


def test_phases_and_stacks_are_copied_too(tmp_path):
    reader, writer = pair(tmp_path)
    names = {"calls-0-1.jsonl", "calls-0-1.spans", "stack-0.txt"}
    for name in names:
        (tmp_path / "node" / name).write_text(name)
    reader.read(writer.take)
    assert {path.name: path.read_text() for path in (tmp_path / "head").iterdir()} == {name: name for name in names}
    reader.close()


def test_a_deleted_log_is_copied_to_its_end_and_then_deleted_there(tmp_path):
    reader, writer = pair(tmp_path)
    log, copy = tmp_path / "node" / "calls-0-1.jsonl", tmp_path / "head" / "calls-0-1.jsonl"
    seen = []
    with log.open("a") as file:
        file.write("one\n")
        file.flush()
        reader.read(writer.take)
        file.write("late\n")
    log.unlink()
    reader.read(lambda data: (seen.append(data), writer.take(data)))
    assert b"late\n" in b"".join(seen)
    assert not copy.exists()
    reader.read(lambda data: seen.append("more"))
    assert "more" not in seen
    reader.close()


def test_without_room_it_waits_and_misses_nothing(tmp_path):
    reader, writer = pair(tmp_path)
    log, copy = tmp_path / "node" / "calls-1-2.jsonl", tmp_path / "head" / "calls-1-2.jsonl"
    text = "x" * 150_000
    log.write_text(text)
    taken = []
    reader.read(lambda data: (taken.append(1), writer.take(data)), lambda: not taken)
    assert 0 < copy.stat().st_size < len(text)
    reader.read(writer.take)
    assert copy.read_text() == text
    reader.close()


def test_stack_dumps_are_copied_too_also_when_a_new_rank_begins_them_anew(tmp_path):
    reader, writer = pair(tmp_path)
    dump, copy = tmp_path / "node" / "stack-1.txt", tmp_path / "head" / "stack-1.txt"
    dump.write_text("first, long\n")
    reader.read(writer.take)
    dump.write_text("second\n")
    reader.read(writer.take)
    assert copy.read_text() == "first, long\nsecond\n"
    reader.close()


def test_a_name_cannot_lead_out_of_the_folder(tmp_path):
    from dtlearn.runtime import wire

    _, writer = pair(tmp_path)
    writer.take(wire.encode({"name": "../calls-0-0.jsonl"}, b"text"))
    assert (tmp_path / "head" / "calls-0-0.jsonl").exists() and not (tmp_path / "calls-0-0.jsonl").exists()


def test_a_folder_that_is_gone_loses_calls_and_nothing_else(tmp_path):
    reader, writer = pair(tmp_path)
    (tmp_path / "node" / "calls-0-1.jsonl").write_text("one\n")
    (tmp_path / "head").rmdir()
    reader.read(writer.take)
    reader.close()
    (tmp_path / "node" / "calls-0-1.jsonl").unlink()
    (tmp_path / "node").rmdir()
    LogReader(tmp_path / "node").read(writer.take)
    assert not list(tmp_path.iterdir())  # and no folder is made anew
