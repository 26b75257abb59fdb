"""Pictures of communication scheduling: backward, transfers and forward as lanes, and what a partition's size costs."""
