"""Pictures of sharded training: memory by stage, who owns what, a unit's gather and release, bytes sent, what fits."""
