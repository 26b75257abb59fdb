"""A small model, and requests that differ in all that they can; for the tests of this folder, and on their ranks."""

import torch

import dtlearn
from dtlearn.models import GPT, GPTConfig
from dtlearn.production.serving.requests import GenerationRequest

CONFIG = GPTConfig(vocab_size=13, context_length=32, num_layers=3, num_heads=4, hidden_size=16)
REQUESTS = (
    GenerationRequest((1, 2, 3), 10),
    GenerationRequest((5,), 20, temperature=1.0, seed=7),
    GenerationRequest(tuple(range(12)), 5, temperature=0.7, seed=3, arrival=1),
    GenerationRequest((2, 3), 1, arrival=2),
    GenerationRequest((9, 9, 9, 9), 6, temperature=2.0, seed=7, arrival=2),
)


def model(config=CONFIG):
    """In float64, the same everywhere, and sure of its tokens: weights are larger than at the start of training."""
    torch.manual_seed(0)
    gpt = GPT(config).double().eval()
    for parameter in gpt.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return gpt.to(dtlearn.device())
