"""Pictures of ranks: how they find each other, who takes part in an operation, what a training step sends."""
