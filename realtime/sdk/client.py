"""An asyncio client: open a session, feed text as it is written, take sound as it is spoken."""

from __future__ import annotations

import asyncio
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

from realtime.protocol.errors import CLOSE_NORMAL
from realtime.protocol.messages import (
    AudioRequest,
    Generation,
    InputRequest,
    NewItem,
    SessionClose,
    SessionStart,
    Timestamps,
)
from realtime.sdk.errors import StreamInterrupted
from realtime.sdk.link import Address
from realtime.sdk.session import Session

PCM = AudioRequest(codec="pcm_s16le")


class Client:
    """`async with Client("http://127.0.0.1:8000") as session: ...`

    Opens a connection and a session; both end with the block. `api_key` may be a client token
    instead. `audio` is the sound that replies come in, `input_audio` what the user's will be sent
    as. `normalize` speaks Markdown, numbers and signs as words, `timestamps="words"` fills
    `Reply.words`. `capsule` is a dialogue that
    `Session.export` gave; it goes on with its voice unless `voice` names another. Raises
    `ServerRefused`.

    A lost connection is taken up again within `resume_s` seconds (0: never). If the server no
    longer has the session, another one begins with the history as text; with `keep_sound` that has
    its sound too, which costs 2 kbit for each second of it after each turn.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        voice: str | None = None,
        audio: AudioRequest = PCM,
        input_audio: InputRequest | None = None,
        generation: Generation | None = None,
        normalize: bool = False,
        timestamps: Timestamps = "none",
        history: tuple[NewItem, ...] = (),
        capsule: bytes | None = None,
        resume_s: float = 60.0,
        keep_sound: bool = False,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._address = Address(socket_url(url), headers)
        self._start = SessionStart(
            m=1,
            voice=voice,
            audio=audio,
            input_audio=input_audio,
            generation=generation,
            normalize=normalize,
            timestamps=timestamps,
            history=history,
            capsule=capsule,
        )
        self._resume_s = resume_s
        self._keep_sound = keep_sound
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Session:
        """Connect and start the session."""
        session = Session(
            self._address,
            self._start,
            self._tasks,
            resume_s=self._resume_s,
            keep_sound=self._keep_sound,
        )
        await session.link.open()
        await self._tasks.__aenter__()
        self._running = self._tasks.create_task(session.run(), name="sdk-run")
        self._session = session
        return session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the session; what is still being said is cut off."""
        # Before the server is told: its last words must not decide how a reply seems to end.
        self._session.cut_off(StreamInterrupted(CLOSE_NORMAL, "this client left its session"))
        await self._session.link.leave(SessionClose(m=1))
        await self._running
        await self._tasks.__aexit__(None, None, None)


def socket_url(url: str) -> str:
    """Return the WebSocket address of a server given by its http(s) or ws(s) address."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ValueError(f"not the address of a server: {url!r} (try http://127.0.0.1:8000)")
    path = parts.path if parts.path not in ("", "/") else "/v1/speech"
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))
