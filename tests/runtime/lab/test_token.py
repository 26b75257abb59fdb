"""The token of a lab: two files that only their owner can read."""

import json
import stat

import pytest

from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.lab.token import head_file, head_keys, make_token, parse_token, read_token


def test_a_token_is_written_for_its_owner_alone_and_read_back(tmp_path):
    path = tmp_path / "new folder" / "lab.token"
    made = make_token(path)
    assert read_token(path) == made
    for file in (path, head_file(path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_heads_secret_is_not_in_the_token(tmp_path):
    path = tmp_path / "lab.token"
    token, secret = head_keys(path)
    assert secret not in path.read_text() and len(secret) == 40
    assert head_keys(path) == (token, secret)  # made once, then kept


def test_a_new_token_replaces_the_old_one(tmp_path):
    path = tmp_path / "lab.token"
    assert make_token(path) != make_token(path)


@pytest.mark.parametrize("which", ["token", "head"])
def test_a_file_that_others_can_read_is_refused(tmp_path, which):
    path = tmp_path / "lab.token"
    make_token(path)
    file = path if which == "token" else head_file(path)
    file.chmod(0o640)
    with pytest.raises(LaunchError, match=rf"can be read by others \(mode 640\).*chmod 600 {file}"):
        head_keys(path)


def test_a_missing_or_a_wrong_file_is_told(tmp_path):
    with pytest.raises(LaunchError, match="`dtlearn lab-token FILE` on the head makes a token"):
        read_token(tmp_path / "none")
    for text in (
        "",
        "[]",
        '{"head_public": 1}',
        json.dumps(dict.fromkeys(("head_public", "node_public", "node_secret"), "x")),
    ):
        with pytest.raises(LaunchError, match="input holds no token of a lab"):
            parse_token(text, "input")
