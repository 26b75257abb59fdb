"""Benches of the strategies, each beside torch's counterpart. They are part of the chapters, not of the platform."""
