"""Two engines with one interface: `plain`, torch alone, then `deepspeed_engine`, where most of that is one call."""
