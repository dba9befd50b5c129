"""What a server says once it listens: where the page is, and two ways to try it."""

from __future__ import annotations

from realtime.server.config import ServerConfig

_ANY = frozenset({"0.0.0.0", "::", ""})


def base_url(config: ServerConfig) -> str:
    """Return the address to reach the server at from its own machine."""
    host = "127.0.0.1" if config.host in _ANY else config.host
    return f"http://{f'[{host}]' if ':' in host else host}:{config.port}"


def greeting(config: ServerConfig) -> str:
    """Return the page's address, a curl line and a Python snippet, each to paste as it stands."""
    url = base_url(config)
    return f"""\
The page is at {url}/

From a shell:

curl -s {url}/v1/audio/speech -H 'Content-Type: application/json' \\
  -d '{{"input": "Hello! How are you today?", "response_format": "wav"}}' -o hello.wav

From Python:

import asyncio, wave
from realtime.sdk import Client

async def main():
    async with Client("{url}") as session:
        with wave.open("hello-sdk.wav", "wb") as file:
            file.setparams((1, 2, session.rate_hz, 0, "NONE", ""))
            async for sound in session.say("Hello! How are you today?"):
                file.writeframes(sound)

asyncio.run(main())
"""
