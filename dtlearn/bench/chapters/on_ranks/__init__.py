"""What the benches of chapters run on the ranks, where that is a file of its own."""
