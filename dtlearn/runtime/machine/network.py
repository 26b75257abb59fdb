"""This machine's network: which interface leads to another machine, which port is free, who can be reached."""

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from ..errors import LaunchError
from .patience import TO_REACH_A_HOST

_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def choose_interface(head: str, wanted: str | None = None) -> tuple[str, str]:
    """The name and address of the interface that collectives use: `wanted`, or the one that routes to `head`.

    Raises LaunchError, listing those that there are, if there is none.
    """
    if wanted is not None:
        if (address := interfaces().get(wanted)) is None:
            raise LaunchError(f"this machine has no interface {wanted!r} with an address; it has {_listed()}")
        return wanted, address
    address = local_address(head)
    for name, own in interfaces().items():
        if own == address:
            return name, address
    raise LaunchError(
        f"the interface that leads to the head ({head}) was not found; it has the address {address}. "
        f"Name it with --interface, or `interface` in lab.toml; this machine has {_listed()}"
    )


def local_address(remote: str) -> str:
    """This machine's address on the way to `remote`. No packet is sent. Raises LaunchError without a route."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((remote, 9))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise LaunchError(f"this machine has no route to the head at {remote}: {error.strerror}") from error


def interfaces() -> dict[str, str]:
    """Name and IPv4 address of every interface that has one."""
    return {
        name: address.address
        for name, addresses in psutil.net_if_addrs().items()
        for address in reversed(addresses)  # the first of several counts
        if address.family == socket.AF_INET
    }


def free_port(address: str = "127.0.0.1") -> int:
    """A port of this machine's address that is free now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def interface_variables(interface: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make gloo, NCCL and TensorPipe use an interface.

    Those that are set already stay, unless they name none that this machine has, as those of another cluster do.
    """
    values = {name: environment.get(name, interface) for name in _INTERFACE_VARIABLES}
    there = psutil.net_if_addrs().keys()
    # NCCL's is a pattern: prefixes, "=name", "^name".
    return {n: v if n.startswith("NCCL") or there & set(v.split(",")) else interface for n, v in values.items()}


def failed_connections(targets: dict[str, Any], source: str) -> dict[str, str]:
    """Which of `{host: [address, port]}` cannot be reached from the address `source`, and why."""

    def attempt(at: list[Any]) -> str:
        try:
            socket.create_connection(tuple(at), timeout=TO_REACH_A_HOST, source_address=(source, 0)).close()
        except OSError as error:
            return error.strerror or str(error)
        return ""

    with ThreadPoolExecutor(len(targets)) as pool:
        return {host: why for host, why in zip(targets, pool.map(attempt, targets.values()), strict=True) if why}


def _listed() -> str:
    return ", ".join(f"{name} ({address})" for name, address in interfaces().items()) or "none"
