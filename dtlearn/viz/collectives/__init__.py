"""Pictures of collectives: who sends which chunk to whom, step by step, and what that costs."""
