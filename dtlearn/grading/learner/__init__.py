"""One learner's exercises: where their files lie, what is kept of each attempt, grading one file.

Runs in the judge, and in the commands. Read `exercise_files`, `stubs`, `attempts`, `grade_file`, `progress`.
"""
