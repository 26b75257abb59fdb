# expect: DTL-VALUE-OWN-OVERFLOW
# says: each rank decides by its own gradients


def agree_on_overflow(gradients):
    return not all(gradient.isfinite().all().item() for gradient in gradients if gradient is not None)
