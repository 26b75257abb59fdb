# expect: DTL-RULE-NAME
# says: uses bfloat16, which does the rounding


def round_to_bf16(x):
    return x.bfloat16().float()
