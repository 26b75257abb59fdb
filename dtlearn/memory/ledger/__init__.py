"""The memory of a step, storage by storage. `record`: what was counted, as data."""
