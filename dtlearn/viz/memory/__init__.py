"""Pictures of memory: over one step, by category and by module, against time, over many steps, and what fits."""
