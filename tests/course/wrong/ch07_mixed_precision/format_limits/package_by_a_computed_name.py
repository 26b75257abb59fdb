# expect: DTL-RULE-NAME
# says: uses importlib.import_module with a name that is computed

import importlib


def format_limits(exponent_bits, mantissa_bits, *, has_infinity=True):
    package = importlib.import_module(".".join(["dtlearn", "mixed_precision"]))
    limits = package.Format("x", exponent_bits, mantissa_bits, None, has_infinity)
    return {key: getattr(limits, key) for key in ("largest", "smallest_normal", "smallest_subnormal", "epsilon")}
