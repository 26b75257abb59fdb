"""docs/instructor.md says what is: its commands parse, its options and files exist."""

import re
from typing import get_args

from dtlearn.grading.report.learner_view import FeedbackLevel
from tests.guides import ROOT, code_spans, commands, options_of, parses

GUIDE = (ROOT / "docs" / "instructor.md").read_text("utf-8")
PLAYED = ("ch01_ranks/", "hidden/", "submissions/", "results/")  # of the examples: names that an instructor chooses


def test_each_command_exists():
    found = commands(GUIDE.replace("$SLURM_ARRAY_TASK_ID", "3").replace("$SLURM_CPUS_PER_TASK", "16"))
    assert {"grade-class", "doctor"} <= {words[0] for words in found}
    assert not [words for words in found if not parses(words)]


def test_each_option_is_one_of_grade_class():
    found = {option for span in code_spans(GUIDE) for option in re.findall(r"(?<![\w-])--[a-z-]+", span)}
    others = {"--security-opt", "--wait", "--array"}  # Docker's, and sbatch's
    assert {"--only-failed", "--again", "--hidden", "--feedback", "--workers", "--seconds"} <= found
    assert found - others <= options_of("grade-class")


def test_each_level_of_feedback_exists():
    said = re.findall(r"^- `([a-z-]+)`", GUIDE, re.MULTILINE)
    assert set(said) == set(get_args(FeedbackLevel))


def test_each_file_of_the_course_is_there():
    paths = [span for span in code_spans(GUIDE) if re.fullmatch(r"(dtlearn|tests|docs)/[\w./-]+", span)]
    assert len(paths) >= 3
    assert not [path for path in paths if not (ROOT / path).exists()]
