"""Programs that return what is hard to read, to compare or to hold."""

from .hand_in import HandIn, body

_LONG = ("DTL-LOOP", "DTL-TIMEOUT", "DTL-STRAGGLER")
_SENT = ("DTL-TAMPERED", "DTL-RESULT", "DTL-LIMIT")  # no `dump` has written this
_DUMP = """
    import dtlearn.grading.plain_values as values
    def forged(value):
        text = json.dumps({"d": [["value", WHAT], ["changed", []], ["now", None], ["left", []], ["peak", None]]})
        return struct.pack("!Q", len(text)) + text.encode() + bytes(RAW)
    values.dump = forged
    return x
"""


def _sends(name: str, does: str, what: str, raw: str = "12", *codes: str) -> HandIn:
    """Sends a result whose text it wrote itself."""
    return body(name, does, _DUMP.replace("WHAT", what).replace("RAW", raw), *_SENT, *codes)


VALUES: list[HandIn] = [
    body(
        "nan",
        "returns no numbers",
        "return x * float('nan')",
        "DTL-VALUE-NAN",
    ),
    body(
        "nan-bits",
        "returns no numbers, with a message in their bits",
        "return torch.full_like(x, 0x7fa00001, dtype=torch.int32).view(torch.float32)",
        "DTL-VALUE-NAN",
    ),
    body(
        "infinity",
        "returns infinity",
        "return x / 0",
        "DTL-VALUE",
        "DTL-VALUE-NAN",
    ),
    body(
        "int-5000",
        "returns a number of 5,000 digits",
        "return 10**5000",
        "DTL-RESULT",
    ),
    body(
        "expanded",
        "returns a tebibyte that is one number",
        "return x[:1].expand(1 << 38)",
        "DTL-OOM",
        "DTL-RAISED",
    ),
    body(
        "strided",
        "returns a view beyond its memory",
        "return x.as_strided((1 << 20,), (1,))",
        "DTL-RAISED",
    ),
    body(
        "overlap",
        "returns a view of one number",
        "return x.as_strided(x.shape, (0,))",
        "DTL-VALUE",
    ),
    body(
        "sparse-tensor",
        "returns a sparse tensor",
        "return x.to_sparse()",
        "DTL-RESULT",
    ),
    body(
        "meta-tensor",
        "returns a tensor without data",
        "return torch.empty(1 << 40, device='meta')",
        "DTL-RESULT",
    ),
    body(
        "complex",
        "returns complex numbers",
        "return x.to(torch.complex64) * 1j",
        "DTL-VALUE-DTYPE",
    ),
    body(
        "generator",
        "returns a generator without end",
        "return (x for _ in iter(int, 1))",
        "DTL-RESULT",
    ),
    body(
        "self-list",
        "returns a list that holds itself",
        "value = []\nvalue.append(value)\nreturn value",
        "DTL-RESULT",
    ),
    body(
        "wide-list",
        "returns a list of ten million numbers",
        "return list(range(10_000_000))",
        "DTL-RESULT",
        *_LONG,
    ),
    body(
        "odd-keys",
        "returns a dict with a key of each kind",
        "return {None: 1, (1,): 2, x: 3}",
        "DTL-RESULT",
    ),
    body(
        "class-lies",
        "returns an object that says that it is a tensor",
        """
        class Lies:
            __class__ = torch.Tensor
            dtype, layout, is_meta, device, shape = torch.float32, torch.strided, False, "cpu", (1 << 40,)
            def __getattr__(self, name):
                return lambda *a, **k: self
        return Lies()
        """,
        "DTL-RESULT",
    ),
    body(
        "metaclass",
        "returns an object whose class answers for all classes",
        """
        class Meta(type):
            __instancecheck__ = __subclasscheck__ = __eq__ = lambda *a: True
            __hash__ = lambda *a: 0
            mro = lambda cls: [cls, object]
        class All(metaclass=Meta):
            __eq__ = lambda *a: True
            __len__ = lambda *a: 1 << 62
            __iter__ = lambda s: iter(int, 1)
        return All()
        """,
        "DTL-RESULT",
    ),
    body(
        "tensor-lies",
        "returns a tensor of a class of its own, which lies about its shape",
        """
        class Lies(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                if getattr(function, "__name__", "") == "__get__":
                    return torch.Size([1 << 40])
                return super().__torch_function__(function, types, args, kwargs or {})
        return x.as_subclass(Lies)
        """,
        "DTL-RESULT",
    ),
    body(
        "float-lies",
        "returns a number whose text is another one",
        "class Lies(float):\n    __repr__ = lambda s: '1e999999'\nreturn Lies(1)",
        "DTL-VALUE-TYPE",
    ),
    body(
        "long-keys",
        "returns a dict whose keys lie about their length",
        "class Key(str):\n    __len__ = lambda s: 1 << 62\nreturn {Key('k' * 1000): x}",
        "DTL-VALUE-TYPE",
    ),
    _sends(
        "claims-tebibytes", "says that it sends a tensor of a tebibyte", '{"t": ["float32", [1 << 38], 0, 1 << 40]}'
    ),
    _sends("claims-overflow", "a shape whose product overflows", '{"t": ["float32", [1 << 32, 1 << 32, 3], 0, 12]}'),
    _sends("claims-negative", "a negative shape", '{"t": ["float32", [-3, -1], 0, 12]}'),
    _sends("claims-huge-text", "a whole number of 4,000 digits in its result", "10**4000", "12", "DTL-VALUE-TYPE"),
    _sends("claims-same-bytes", "20,000 tensors of the same bytes", '[{"t": ["float32", [3], 0, 12]}] * 20_000'),
    _sends(
        "claims-empty",
        "a tensor with no numbers and a huge side",
        '{"t": ["float32", [0, 1 << 62], 0, 0]}',
        "0",
        "DTL-VALUE-SHAPE",
    ),
    _sends("claims-dtype", "a kind of number that there is not", '{"t": ["object", [3], 0, 12]}'),
    _sends("claims-changed", "a result without its parts", "5", "0", "DTL-VALUE-TYPE"),
    _sends("claims-long", "a gigabyte after its result", "5", "1 << 30", *_LONG, "DTL-OOM"),
]
