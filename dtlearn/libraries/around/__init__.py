"""What stands around an engine: how it is started, what it writes, what it says it needs. No order."""
