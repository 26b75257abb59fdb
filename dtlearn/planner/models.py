"""Models by name, by their sizes, or by nothing but a number of parameters.

Sources of the sizes beside those of `dtlearn.memory`: BLOOM: its model card, 2211.05100. MT-NLG: 2201.11990. OPT-175B:
2205.01068. Llama 1 and 2: 2302.13971, 2307.09288. PaLM: 2204.02311, table 1. Gopher: 2112.11446. MPT: llm-foundry's
configurations. GPT-NeoX-20B: 2204.06745. BloombergGPT: 2303.17564. Megatron-LM 8.3B: 1909.08053. T-NLG: 1910.02054.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

from dtlearn.memory.arithmetic.block_variants import GPT_BLOCK, LLAMA_BLOCK
from dtlearn.memory.arithmetic.published import MODELS, ModelSizes

FUSED_GPT_BLOCK = replace(GPT_BLOCK, fused_attention=True, dropout=False)


def _llama(name: str, layers: int, hidden: int, heads: int, wide: int, kv: int = 0, context: int = 2048) -> ModelSizes:
    return ModelSizes(name, layers, hidden, heads, 32000, context, kv, wide, tied=False, kind=LLAMA_BLOCK)


MORE_MODELS = {
    model.name: model
    for model in (
        *MODELS.values(),
        ModelSizes("GPT-2 8.3B", 72, 3072, 24, 51200, 1024),
        ModelSizes("T-NLG 17B", 78, 4256, 28, 51200, 1024),
        ModelSizes("GPT-NeoX 20B", 44, 6144, 64, 50432, 2048, tied=False),
        ModelSizes("Megatron 22B", 48, 6144, 64, 51200, 2048),
        ModelSizes("MT-NLG 530B", 105, 20480, 128, 51200, 2048),
        ModelSizes("Megatron 1T", 128, 25600, 160, 51200, 2048),
        ModelSizes("BLOOM 176B", 70, 14336, 112, 250880, 2048),
        ModelSizes("OPT 175B", 96, 12288, 96, 50272, 2048),
        ModelSizes("BloombergGPT 50B", 70, 7680, 40, 131072, 2048),
        ModelSizes("Gopher 280B", 80, 16384, 128, 32000, 2048),
        ModelSizes("PaLM 540B", 118, 18432, 48, 256000, 2048, 1, 73728),
        ModelSizes("MPT 7B", 32, 4096, 32, 50368, 2048, kind=FUSED_GPT_BLOCK),
        ModelSizes("MPT 13B", 40, 5120, 40, 50368, 2048, kind=FUSED_GPT_BLOCK),
        ModelSizes("MPT 30B", 48, 7168, 56, 50368, 2048, kind=FUSED_GPT_BLOCK),
        ModelSizes("MPT 70B", 80, 8192, 64, 50368, 2048, kind=FUSED_GPT_BLOCK),
        _llama("Llama 1 7B", 32, 4096, 32, 11008),
        _llama("Llama 1 13B", 40, 5120, 40, 13824),
        _llama("Llama 1 33B", 60, 6656, 52, 17920),
        _llama("Llama 1 65B", 80, 8192, 64, 22016),
        _llama("Llama 2 7B", 32, 4096, 32, 11008, context=4096),
        _llama("Llama 2 13B", 40, 5120, 40, 13824, context=4096),
        _llama("Llama 2 70B", 80, 8192, 64, 28672, 8, 4096),
    )
}


NUMBER = r"\d+(?:\.\d+)?(?:e\+?\d+)? *(?:t|b|m|billion|million|trillion)?"
FEWEST, MOST = 1e6, 1e15  # parameters of a model that a cluster is planned for


def parse_count(text: str) -> float | None:
    """The number in "70B", "1.3e9", "530 billion" or "1T"; None: there is none."""
    match = re.search(r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*(t|b|m|billion|million|trillion)?(?![a-z0-9])", text.lower())
    if not match:
        return None
    return float(match[1]) * {"t": 1e12, "b": 1e9, "m": 1e6}.get((match[2] or " ")[0], 1.0)


def find_model(name: str) -> ModelSizes:
    """The model of a name ("bloom", "llama-3-8b", "GPT-3"), or one of that many parameters ("20B", "1.3e9").

    Raises:
        ValueError: no such name, no number, or a name that several models share.
    """
    plain = _plain(name)
    exact = [model for known, model in MORE_MODELS.items() if _plain(known) == plain]
    word = [model for known, model in MORE_MODELS.items() if _plain(known.split()[0]) == plain]
    alike = (
        exact or word or [model for known, model in MORE_MODELS.items() if plain and _plain(known).startswith(plain)]
    )
    if len(alike) == 1:
        return alike[0]
    if len(alike) > 1:
        raise ValueError(f"{name!r} may be {', '.join(model.name for model in alike)}; give the whole name")
    if re.fullmatch(NUMBER, name.strip().lower()):
        return model_of_count(parse_count(name) or 0.0)
    near = difflib.get_close_matches(name.lower(), [known.lower() for known in MORE_MODELS], n=2, cutoff=0.4)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(
        f"unknown model {name!r}{hint or '.'} Known are {', '.join(MORE_MODELS)}; or give a number of "
        "parameters, such as 20B"
    )


def model_of_count(count: float, vocabulary: int = 51200, context: int = 2048) -> ModelSizes:
    """A GPT of about so many parameters: a known one within 4 %, or one of the usual proportions.

    The proportions are those of GPT-3's and Megatron's families: 128 features a head, and a hidden size of 128 L (100 L
    at 10 billion parameters, 200 L at 10^12).

    Raises:
        ValueError: fewer than a million parameters, or more than 10^15.
    """
    if not FEWEST <= count <= MOST:  # NaN too
        raise ValueError(
            f"a model of {count:g} parameters is none that a cluster is planned for; expected 1e6 to 1e15, "
            "such as 20B or 1.3e9"
        )
    near = min(MORE_MODELS.values(), key=lambda model: abs(model.num_parameters - count))
    if abs(near.num_parameters - count) <= 0.04 * count:
        return near
    hidden = max(64, round((count * 128 / 12) ** (1 / 3) / 128) * 128)
    layers = max(1, round(count / (12 * hidden * hidden)))
    return ModelSizes(f"{count / 1e9:g}B", layers, hidden, max(1, hidden // 128), vocabulary, context)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())
