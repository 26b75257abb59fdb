"""Grading a class: many submissions, some of which hang, crash or attack, without losing one."""
