# expect: DTL-VALUE-STALLED
# says: the optimizer works on the 16-bit weights, or on masters that are made


def master_weights(parameters, optimizer_class, **options):
    return optimizer_class(parameters, **options)
