# expect: DTL-VALUE-KEPT-BITS
# says: these are float16 numbers


def round_to_bf16(x):
    return x.half().float()
