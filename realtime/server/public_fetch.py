"""Fetch what a stranger's URL names, but nothing from networks that only this machine can reach.

The address is checked after the name is resolved, and the connection goes to the very address that
was checked: a name that answers differently the second time gains nothing. Redirects are not
followed, and proxies of the environment not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection

import httpx

FETCH_TIMEOUT_S = 10.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class FetchError(Exception):
    """What the URL names was not fetched; `forbidden` says that it must not be."""

    def __init__(self, message: str, *, forbidden: bool = False) -> None:
        super().__init__(message)
        self.forbidden = forbidden


async def fetch(url: str, *, max_bytes: int, private_hosts: Collection[str] = ()) -> bytes:
    """Return the body behind an http(s) URL.

    Hosts of `private_hosts` may have any address. Raises `FetchError`: also for a body beyond
    `max_bytes`, and when all is not there within 10 s.
    """
    body = bytearray()
    try:
        async with (
            asyncio.timeout(FETCH_TIMEOUT_S),
            httpx.AsyncClient(
                transport=_PublicTransport(private_hosts), timeout=FETCH_TIMEOUT_S
            ) as client,
            # A compressed body could unfold to any size within one piece.
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if response.status_code != 200:
                raise FetchError(f"was answered with status {response.status_code}")
            async for part in response.aiter_raw():
                body += part
                if len(body) > max_bytes:
                    raise FetchError(f"is larger than {max_bytes >> 20} MiB")
    except TimeoutError:
        raise FetchError(f"was not there within {FETCH_TIMEOUT_S:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        raise FetchError(f"cannot be fetched: {error or type(error).__name__}") from error
    return bytes(body)


def is_public(address: Address) -> bool:
    """Whether an address belongs to the internet, also where IPv6 wraps an IPv4 address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


class _PublicTransport(httpx.AsyncHTTPTransport):
    def __init__(self, private_hosts: Collection[str]) -> None:
        super().__init__()
        self._private_hosts = frozenset(host.casefold() for host in private_hosts)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Connect to the address that was checked; `Host` and TLS still name the host."""
        host = request.url.host
        if host.casefold() not in self._private_hosts:
            request.extensions = request.extensions | {"sni_hostname": host}
            request.url = request.url.copy_with(host=await _public_address(host))
        return await super().handle_async_request(request)


async def _public_address(host: str) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        # One private address among public ones is how a name is turned against its resolver.
        if not is_public(ipaddress.ip_address(address.partition("%")[0])):
            raise FetchError(f"names a private address ({host})", forbidden=True)
    return addresses[0]
