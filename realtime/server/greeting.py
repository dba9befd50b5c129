"""What a server says once it listens: where the page is, and two ways to try it."""

from __future__ import annotations

import json

from engine.models.capabilities import Capabilities
from realtime.server.config import ServerConfig

_ANY = frozenset({"0.0.0.0", "::", ""})


def base_url(config: ServerConfig) -> str:
    """Return the address to reach the server at from its own machine."""
    host = "127.0.0.1" if config.host in _ANY else config.host
    return f"http://{f'[{host}]' if ':' in host else host}:{config.port}"


def greeting(config: ServerConfig, model: Capabilities) -> str:
    """Return the page's address, a curl line and a Python snippet, each to paste as it stands.

    Page and snippet are for models that hold dialogues.
    """
    url = base_url(config)
    body = json.dumps(dict(model.example) | {"response_format": "wav"})
    curl = f"""\
From a shell:

curl -s {url}/v1/audio/speech -H 'Content-Type: application/json' \\
  -d '{body}' -o hello.wav
"""
    if not model.holds_dialogues:
        return f"{model.title} listens at {url}/v1\n\n{curl}"
    return f"""\
The page is at {url}/

{curl}
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
