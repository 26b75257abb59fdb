"""Pictures of compressed gradients: loss over steps, bytes and seconds, sent bytes, error feedback, break-even."""
