"""Errors in hooks of a backward pass, which torch would lose on this device, or end the process with.

A hook's error waits in the interpreter while C++ leaves the pass, and there it meets the guard of our device, which is
in Python too. So a hook keeps its error, and the pass raises it at its end. What stands behind the hook runs on.
"""

from __future__ import annotations

import functools

import torch

_errors: list[BaseException] = []


def keep_errors() -> None:
    """For all hooks that are made from now on."""
    for owner, name in (
        (torch.Tensor, "register_hook"),
        (torch.Tensor, "register_post_accumulate_grad_hook"),
        (torch.autograd.graph.Node, "register_hook"),
        (torch.autograd.graph.Node, "register_prehook"),
    ):
        _wrap_hooks(owner, name)
    run = torch.autograd.graph._engine_run_backward

    def run_and_raise(*args, **kwargs):
        before = len(_errors)
        try:
            return run(*args, **kwargs)
        finally:
            if len(_errors) > before:
                error = _errors[before]
                del _errors[before:]
                raise error

    torch.autograd.graph._engine_run_backward = torch.autograd._engine_run_backward = run_and_raise


def _wrap_hooks(owner, name: str) -> None:
    register = getattr(owner, name)

    @functools.wraps(register)
    def registered(self, hook, *args, **kwargs):
        @functools.wraps(hook)
        def kept(*values):
            try:
                return hook(*values)
            except BaseException as error:
                _errors.append(error)

        return register(self, kept, *args, **kwargs)

    setattr(owner, name, registered)
