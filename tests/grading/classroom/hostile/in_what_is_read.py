"""Programs that write to what the grader reads: their log of calls, and their line to it."""

from .hand_in import HandIn, body

_FAILS = ("DTL-TAMPERED", "DTL-LIMIT")  # it was seen what they did

IN_LOGS: list[HandIn] = [
    body(
        "log-fifo",
        "a FIFO where its log was",
        """
        for _, path in logs():
            os.unlink(path)
            os.mkfifo(path)
        time.sleep(2)
        """,
        *_FAILS,
        few=True,
    ),
    body(
        "log-zero",
        "a link to /dev/zero where its log was",
        """
        for _, path in logs():
            os.unlink(path)
            os.symlink("/dev/zero", path)
        time.sleep(2)
        """,
        *_FAILS,
    ),
    body(
        "log-folder",
        "a folder where its log was",
        """
        for _, path in logs():
            os.unlink(path)
            os.mkdir(path)
        time.sleep(1)
        """,
        *_FAILS,
    ),
    body(
        "log-socket",
        "a socket where its log was",
        """
        for _, path in logs():
            os.unlink(path)
            socket.socket(socket.AF_UNIX).bind(path)
        time.sleep(1)
        """,
        *_FAILS,
    ),
    body("log-junk", "bytes that are no text in its log", "in_log(bytes(range(256)) + b'\\n')", *_FAILS, few=True),
    body("log-half", "half a line in its log", 'in_log(b\'{"seq": 1, "op\')', *_FAILS),
    body("log-deep", "deeply nested JSON in its log", "in_log(b'[' * 100_000 + b']' * 100_000 + b'\\n')", *_FAILS),
    body("log-types", "numbers as texts in its log", 'in_log(b\'{"seq": "x", "op": 5}\\n\')', *_FAILS),
    body("log-list", "a list as a line of its log", "in_log(b'[1, 2]\\n')", *_FAILS),
    body("log-ends", "ends of calls that never began", 'in_log(b\'{"end": 12345, "end_ns": 1}\\n\')', *_FAILS, ""),
    body(
        "log-huge-number",
        "a number with a million digits in its log",
        "in_log(b'{\"seq\": ' + b'9' * 1_000_000 + b'}\\n')",
        *_FAILS,
    ),
    body(
        "log-big",
        "a log of 1 TiB, with nothing in it",
        "[os.truncate(p, 1 << 40) for _, p in logs()]",
        *_FAILS,
        "DTL-RAISED",
    ),
    body(
        "log-line",
        "a line of 64 MiB in its log",
        "in_log(b'{\"seq\": \"' + b'x' * (64 << 20) + b'\"}\\n')",
        *_FAILS,
    ),
    body("log-empty", "an emptied log", "[os.truncate(p, 0) for _, p in logs()]", *_FAILS, ""),
    body("log-gone", "its log deleted", "[os.unlink(p) for _, p in logs()]", *_FAILS, ""),
]

_LINE = (*_FAILS, "DTL-RANK-EXIT", "DTL-VALUE", "DTL-RESULT", "DTL-LOOP", "DTL-COLL-SKIP", "DTL-TIMEOUT")

ON_THE_LINE: list[HandIn] = [
    body("line-json", "broken JSON on its line", "on_line(message(b'{\"kind\": '))", *_LINE, few=True),
    body("line-deep", "deeply nested JSON on its line", "on_line(message(b'[' * 100_000 + b']' * 100_000))", *_LINE),
    body("line-types", "a header with the wrong types", "on_line(message(b'{\"kind\": [5]}'))", *_LINE, ""),
    body("line-list", "a list as a header", "on_line(message(b'[1]'))", *_LINE),
    body("line-error", "an error whose words are numbers", 'on_line(message(b\'{"kind": "error"}\'))', *_LINE),
    body("line-bytes", "a header that is no text", "on_line(message(b'\\xff\\xfe\\x00'))", *_LINE),
    body("line-huge", "a length of 2^60", "on_line(struct.pack('!IQ', 10, 1 << 60)); time.sleep(1)", *_LINE),
    body(
        "line-flood",
        "4 GB on its line",
        """
        piece = message(b'{"kind": "incomplete", "reason": "x"}', bytes(1 << 20))
        for _ in range(4_000):
            on_line(piece)
        """,
        *_LINE,
        "",  # it answers right afterwards, and where there is time for that, it passes
        few=True,
    ),
    body(
        "line-result",
        "a result that it made itself, then the end of its work",
        """
        on_line(message(b'{"kind": "result"}', b"passed") + message(b'{"kind": "finished"}'))
        os._exit(0)
        """,
        *_LINE,
    ),
    # It answers right as well: whether that is heard is a matter of moments.
    body("line-twice", "two ends of its work", 'on_line(message(b\'{"kind": "finished"}\') * 2)', *_LINE, ""),
    body("line-closed", "its line closed", "os.closerange(3, 64)", *_LINE, "DTL-RAISED", "DTL-RANK-KILLED"),
    body(
        "junk-everywhere",
        "bytes to every descriptor that it has",
        """
        for number in range(3, 64):
            try:
                os.write(number, os.urandom(1000))
            except OSError:
                pass
        """,
        *_LINE,
    ),
]
