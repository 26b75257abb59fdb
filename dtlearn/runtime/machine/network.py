"""Which network interface of this machine leads to another machine."""

from __future__ import annotations

import socket
import struct
import sys

from ..errors import LaunchError

_SIOCGIFADDR = 0x8915 if sys.platform == "linux" else 0xC0206921


def choose_interface(head: str, wanted: str | None = None) -> tuple[str, str]:
    """The name and address of the interface that collectives use: `wanted`, or the one that routes to `head`.

    Raises:
        LaunchError: there is none; the message lists those that there are.
    """
    if wanted is not None:
        if (address := interface_address(wanted)) is None:
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
    found = {name: interface_address(name) for _, name in socket.if_nameindex()}
    return {name: address for name, address in found.items() if address}


def interface_address(name: str) -> str | None:
    """The IPv4 address of an interface; None if it has none."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _listed() -> str:
    return ", ".join(f"{name} ({address})" for name, address in interfaces().items()) or "none"
