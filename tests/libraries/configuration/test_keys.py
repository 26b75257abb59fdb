"""The table of keys."""

import pytest

from dtlearn.course import load_course
from dtlearn.libraries.configuration.keys import ALSO_KNOWN, DS_KEYS, REMOVED
from dtlearn.libraries.configuration.shape import PATHS
from tests.test_pages import ROOT


def test_every_key_stands_once():
    paths = [key.path for key in DS_KEYS]
    assert len({*paths, *ALSO_KNOWN, *REMOVED}) == len(paths) + len(ALSO_KNOWN) + len(REMOVED)
    assert set(paths) | set(ALSO_KNOWN) == set(PATHS)


@pytest.mark.parametrize("key", DS_KEYS, ids=lambda key: key.path)
def test_a_key_has_a_sentence_and_a_chapter_that_is_there(key):
    assert key.does.endswith(".")
    chapters = {chapter.slug[:4] for chapter in load_course(ROOT).chapters}
    assert key.chapter in chapters | {""}


def test_most_keys_are_explained_by_a_chapter():
    assert sum(bool(key.chapter) for key in DS_KEYS) > 50
