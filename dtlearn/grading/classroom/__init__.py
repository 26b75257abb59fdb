"""A class: its submissions, graded several at once, and the tables that a course wants of it.

Runs in `dtlearn grade-class`. Read `reading`, `submissions`, `batch`, `store`, `class_rules`; then `export` and
what it writes: `students`, `gradebook`, `gradescope`, `lti`, `summary`, `summary_html`; and `similarity`. `parts` is
for a class that several machines grade.
"""
