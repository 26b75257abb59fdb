"""Pictures of parameter servers: who keeps what, bytes by rank, who waits, staleness, loss over time, and gossip."""
