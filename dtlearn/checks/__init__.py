"""The checks of the course, one module per exercise: `checks/<chapter slug>/<exercise name>.py` defines `CHECK`."""
