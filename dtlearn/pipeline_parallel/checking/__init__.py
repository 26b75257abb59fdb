"""What is wrong with a schedule, and when everything in it happens: pure functions for any process.

`needs` says what an action waits for; on it stand `validate`, what is wrong in words, and `simulate`, the times, which
`text_grid` prints and `theory` has formulae for. `deadlock` is about sends and receives, in whatever order they are.
"""
