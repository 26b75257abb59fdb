"""Chapter 16: the life of a job, saves, stragglers, goodput, ranks with several roles, and who notices a fault."""
