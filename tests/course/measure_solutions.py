"""Grades the worked answers again and again, on a busy machine, and counts those that do not pass.

    python -m tests.course.measure_solutions [--repeats 200] [--load] [--minutes 6]

Run by hand: a false alarm of the grader would show here.
"""

import argparse
import statistics
import subprocess
import sys
import time

from dtlearn.course import load_course
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import files_of, find_check

_BUSY = "import os, threading\nthreading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--load", action="store_true", help="two processes that compute all the time, beside it")
    parser.add_argument("--minutes", type=float, default=6.0)
    options = parser.parse_args()
    # They end when the pipe that they read closes, however this process ends.
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY + "while True: pass"], stdin=subprocess.PIPE) for _ in "ab"]
    if not options.load:
        stop(busy)
    course = load_course()
    exercises = [e for chapter in course.chapters if chapter.ready for e in chapter.exercises]
    answers = {e.id: Answer(files_of(course, e).solution.read_text("utf-8"), f"{e.name}.py", e.name) for e in exercises}
    seconds, alarms = {e.id: list[float]() for e in exercises}, list[str]()
    begun = time.monotonic()
    try:
        for number in range(options.repeats):
            exercise = exercises[number % len(exercises)]
            if time.monotonic() - begun > 60 * options.minutes:
                break
            verdict = grade(exercise, find_check(course, exercise), answers[exercise.id], seed=number)
            seconds[exercise.id].append(verdict.seconds)
            if not verdict.passed:
                alarms.append(f"{exercise.id} seed {number}: {verdict.code} {verdict.first_fault}")
    finally:
        stop(busy)
    for name, taken in seconds.items():
        if taken:
            print(
                f"{name:32} {len(taken):4} times, median {statistics.median(taken):.2f} s, longest {max(taken):.2f} s"
            )
    print(f"{sum(map(len, seconds.values()))} gradings of worked answers, {len(alarms)} false alarms")
    print("\n".join(alarms))


def stop(busy: list[subprocess.Popen[bytes]]) -> None:
    for process in busy:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
