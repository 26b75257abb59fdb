"""Scores as LTI objects, one JSON object per line, for a tool that posts them to a learning platform.

Format: "LTI Assignment and Grade Services 2.0", section 3.4, score publish service
(https://www.imsglobal.org/spec/lti-ags/v2p0/#score-publish-service). What the grader failed on is PendingManual and has
no scoreGiven: at least Canvas would take the number over (Canvas LMS REST API, "Score"). Learners see the score as soon
as it is posted, also with hidden cases in it: post it when they may.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..report import words
from ..report.learner_view import FeedbackLevel, learner_view
from ..verdict import Verdict
from .gradebook import Class
from .students import Student, student_of

_ACTIVITY = {"passed": "Completed", "not-attempted": "Initialized"}  # of the other states: "Submitted"
_GRADING = {"skipped": "Pending", "error": "PendingManual"}  # of the other states: "FullyGraded"


def lti_scores(verdicts: Class, students: Mapping[str, Student], *, graded: datetime, level: FeedbackLevel) -> str:
    """JSON lines: `{"exercise": ..., "score": {the LTI object}}`; the exercise says which line item it belongs to.

    Args:
        students: where one has no `lti_user_id`, the `student_id` stands for it.
        graded: when, with a time zone (or ValueError); platforms refuse a score that is older than theirs.
        level: of the comment, which learners see.
    """
    if graded.tzinfo is None:
        raise ValueError(f"{graded} has no time zone: use datetime(..., tzinfo=...)")
    lines = []
    for submission, of_submission in verdicts.items():
        student = student_of(submission, students)
        user = student.lti_user_id or student.student_id
        lines += [{"exercise": v.exercise, "score": _score(v, user, graded, level)} for v in of_submission]
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def _score(verdict: Verdict, user: str, graded: datetime, level: FeedbackLevel) -> dict[str, Any]:
    state = verdict.state if verdict.final or verdict.state == "error" else "skipped"
    grading = _GRADING.get(state, "FullyGraded")
    score: dict[str, Any] = {
        "userId": user,
        "activityProgress": _ACTIVITY.get(state, "Submitted"),
        "gradingProgress": grading,
        "timestamp": graded.astimezone(UTC).isoformat(timespec="milliseconds"),
        "comment": _comment(learner_view(verdict, level)),
    }
    if grading == "FullyGraded":
        score |= {"scoreGiven": round(float(verdict.score), 4), "scoreMaximum": float(verdict.points)}
    return score


def _comment(shown: Verdict) -> str:
    if shown.state == "error":
        return f"{shown.title}: {words.NOT_YOUR_FAULT}"
    fault = shown.first_fault
    text = f"{shown.title}: {words.state_words(shown)}"
    if fault and shown.state != "not-attempted":
        text += f" ({words.where(fault)}): {fault.headline} [{fault.code}]"
    return f"{text}. {words.withheld_words(shown)}" if shown.withheld else text
