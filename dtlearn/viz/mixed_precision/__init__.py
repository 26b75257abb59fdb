"""Pictures of mixed precision: bits of a number, gradients against a format, loss scales, what rounding does."""
