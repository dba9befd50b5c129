"""The way to the server: one socket after another, for one session as long as there is one."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Callable
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from realtime.protocol.errors import (
    CLOSE_NORMAL,
    CLOSE_PROTOCOL,
    CLOSE_REPLACED,
    CLOSE_TOO_BIG,
    ProtocolError,
)
from realtime.protocol.messages import (
    ClientMessage,
    Error,
    FromServer,
    HistoryGet,
    InputRequest,
    Ping,
    ServerMessage,
    SessionClosed,
    SessionStart,
    SessionStarted,
    SessionUpdate,
    SessionUpdated,
)
from realtime.protocol.query import RESUMES
from realtime.sdk.core import SUBPROTOCOL, ClientCore, Sound
from realtime.sdk.errors import MossError, ServerRefused, StreamInterrupted

_FINAL_CODES = frozenset({CLOSE_NORMAL, CLOSE_TOO_BIG, CLOSE_PROTOCOL, CLOSE_REPLACED})
_NO_SETTINGS = frozenset(field.name for field in dataclasses.fields(FromServer)) | {"type"}
_RETRY_STATUS = frozenset({429, 500, 502, 503, 504})
_GONE_CODES = frozenset({"session_not_found", "resume_rejected"})
_BUSY_CODES = frozenset({"rate_limited", "overloaded"})
_RETRY_S = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0)
_PROBE_S = 5.0  # a dead socket shows within twice this
_CLOSE_S = 1.0  # for the other side to agree
_PING_S = 10.0

# At DEBUG websockets logs every header and frame: keys, and what is said.
_quiet = logging.getLogger(f"{__name__}.websockets")
_quiet.setLevel(logging.INFO)

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where and how to connect."""

    url: str
    headers: dict[str, str]

    async def dial(self, resumes: str = "") -> ClientConnection:
        """Open a socket, to take up the session of that id if there is one.

        Raises `ServerRefused`.
        """
        shown, _, query = self.url.partition("?")  # a query may hold a token
        announced = f"{RESUMES}={quote(resumes)}" if resumes else ""
        asked = "&".join(part for part in (query, announced) if part)
        try:
            return await connect(
                f"{shown}?{asked}" if asked else shown,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers=self.headers,
                compression=None,
                max_size=None,
                ping_interval=_PROBE_S,
                ping_timeout=_PROBE_S,
                close_timeout=_CLOSE_S,
                logger=_quiet,
            )
        except InvalidStatus as error:
            response = error.response
            body = (response.body or b"").decode(errors="replace")
            raise ServerRefused(
                f"HTTP {response.status_code} from {shown}: {body[:500]}", response.status_code
            ) from None
        except (OSError, InvalidHandshake) as error:
            raise ServerRefused(f"cannot connect to {shown}: {error}") from error


class Link:
    """Sends and receives over a socket, and gets another one when that is lost.

    What was sent and not applied is sent again. A session that the server no longer has is begun
    anew with the history as this client knows it; `begun_anew` is called then. `deliver` gets what
    comes. When `run` ends, `lost` says why.
    """

    def __init__(
        self,
        address: Address,
        start: SessionStart,
        *,
        give_up_s: float,
        deliver: Callable[[ServerMessage | Sound], None],
        begun_anew: Callable[[StreamInterrupted], None],
    ) -> None:
        self.core = ClientCore()
        self.lost: MossError | None = None
        self._address = address
        self._start = start
        self._give_up_s = give_up_s
        self._deliver = deliver
        self._begun_anew = begun_anew
        self._websocket: ClientConnection
        self._is_open = asyncio.Event()  # also once it is lost for good
        self._patience: asyncio.Timeout | None = None  # of getting another socket
        self._is_closing = False
        self._is_over = False  # the server has ended the session
        self._pings = itertools.count(1)

    @property
    def started(self) -> SessionStarted:
        """How the session began, or was taken up last."""
        assert self.core.started
        return self.core.started

    async def open(self) -> None:
        """Connect and start the session. Raises `ServerRefused`."""
        websocket = await self._address.dial()
        try:
            await self._begin(self.core, websocket, self._start)
        except ConnectionClosed as error:
            raise ServerRefused(str(_interrupted(error))) from None
        except BaseException:
            await websocket.close()
            raise

    async def send(self, message: ClientMessage) -> None:
        """Send a message, now or once there is a socket again. Raises `MossError`."""
        await self._ready()
        await self._put(self.core.send(message))

    async def send_user_audio(self, data: bytes) -> None:
        """Send what the user says; raises `ValueError` and `MossError`."""
        await self._ready()
        for frame in self.core.user_audio(data):
            await self._put(frame)

    def adopt(self, change: SessionUpdate, updated: SessionUpdated) -> None:
        """Begin a session anew, should that be, with settings that were changed since the start."""
        common = {field.name for field in dataclasses.fields(updated)} - _NO_SETTINGS
        asked = {name for name in common if getattr(change, name) is not None}
        settings = {name: getattr(updated, name) for name in asked}
        if heard := settings.get("input_audio"):
            settings["input_audio"] = InputRequest(codec=heard.codec, sample_rate=heard.sample_rate)
        self._start = dataclasses.replace(self._start, **settings)

    async def run(self) -> None:
        """Receive until the session is over or out of reach."""
        pinging = asyncio.create_task(self._ping(), name="sdk-ping")
        try:
            while True:
                error = await self._read()
                self._is_open.clear()
                if not self._may_return(error):
                    break
                logger.info("session lost its connection (%s); resuming", error)
                try:
                    async with asyncio.timeout(self._give_up_s) as self._patience:
                        await self._return(error)
                except TimeoutError:
                    break
                except MossError as refused:
                    error = refused
                    break
            self.lost = error
        finally:
            self._is_open.set()
            pinging.cancel()

    async def leave(self, farewell: ClientMessage) -> None:
        """Say farewell and close the socket; `run` then ends."""
        self._is_closing = True
        if self._patience and not self._patience.expired() and not self._is_open.is_set():
            self._patience.reschedule(asyncio.get_running_loop().time())
        if self._is_open.is_set() and not self.lost:
            await self._put(self.core.send(farewell))
        await self._websocket.close()

    async def _ready(self) -> None:
        while not self._is_open.is_set():
            await self._is_open.wait()
        if self.lost:
            raise self.lost

    async def _put(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionClosed):  # it will be sent again
            await self._websocket.send(data)

    async def _read(self) -> MossError:
        try:
            async for data in self._websocket:
                received = self.core.receive(data)
                if isinstance(received, SessionClosed):
                    self._is_over = True
                if isinstance(received, Error) and received.expected is not None:
                    await self._send_again(received)
                elif received is not None:
                    self._deliver(received)
            code = self._websocket.close_code or 1006
            return StreamInterrupted(code, self._websocket.close_reason or "")
        except ConnectionClosed as closed:
            return _interrupted(closed)
        except ProtocolError as broken:
            await self._websocket.close(CLOSE_PROTOCOL)
            return StreamInterrupted(CLOSE_PROTOCOL, broken.message)

    async def _send_again(self, error: Error) -> None:
        """Send what the server would not take yet; what it refused for the hole that left, too."""
        if error.code != "rate_limited":
            return
        self._is_open.clear()
        await asyncio.sleep((error.retry_after_ms or 0) / 1000)
        for data in self.core.unconfirmed():
            await self._put(data)
        self._is_open.set()

    def _may_return(self, error: MossError) -> bool:
        final = isinstance(error, StreamInterrupted) and error.code in _FINAL_CODES
        return not self._is_closing and not final and self._give_up_s > 0

    async def _return(self, error: MossError) -> None:
        """Get another socket and go on over it; raises `MossError` where that cannot be."""
        waits_s = itertools.chain(_RETRY_S, itertools.repeat(_RETRY_S[-1]))
        while True:
            await asyncio.sleep(next(waits_s))
            try:
                websocket = await self._address.dial(self.started.session_id)
            except ServerRefused as refused:
                if refused.status and refused.status not in _RETRY_STATUS:
                    raise
                continue
            try:
                await self._go_on(websocket, error)
                return
            except ConnectionClosed:
                continue
            except ServerRefused as refused:
                await websocket.close()
                if refused.code not in _BUSY_CODES:
                    raise
            except ProtocolError as broken:
                await websocket.close(CLOSE_PROTOCOL)
                raise StreamInterrupted(CLOSE_PROTOCOL, broken.message) from None
            except BaseException:
                await websocket.close()
                raise

    async def _go_on(self, websocket: ClientConnection, error: MossError) -> None:
        if self.started.resume_token and not self._is_over:
            await websocket.send(self.core.resume())
            answer = self.core.begin(await websocket.recv())
            if isinstance(answer, SessionStarted):
                self._deliver(answer)
                for data in self.core.unconfirmed():
                    await websocket.send(data)
                return self._use(websocket)
            if answer.code not in _GONE_CODES:
                raise ServerRefused(answer.message, code=answer.code)
        await self._begin_anew(websocket, error)

    async def _begin_anew(self, websocket: ClientConnection, error: MossError) -> None:
        mirror = self.core.mirror
        seed = mirror.seed()
        start = dataclasses.replace(self._start, capsule=seed.capsule, history=seed.history)
        await self._begin(ClientCore(mirror), websocket, start)
        code = error.code if isinstance(error, StreamInterrupted) else 1006
        self._begun_anew(StreamInterrupted(code, "the session began anew with its history"))

    async def _begin(
        self, core: ClientCore, websocket: ClientConnection, start: SessionStart
    ) -> None:
        await websocket.send(core.send(dataclasses.replace(start, event_id="start")))
        answer = core.begin(await websocket.recv())
        if isinstance(answer, Error):
            raise ServerRefused(answer.message, code=answer.code)
        self._deliver(answer)
        if start.capsule or start.history:  # the mirror has to know what it begins with
            await websocket.send(core.send(HistoryGet(m=1)))
        self.core = core
        self._is_over = False
        self._use(websocket)

    def _use(self, websocket: ClientConnection) -> None:
        self._websocket = websocket
        self._is_open.set()

    async def _ping(self) -> None:
        """Keep proxies that count data awake, and learn what has arrived."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_PING_S)
            await self.send(Ping(m=1, event_id=f"ping{next(self._pings)}", t=loop.time() * 1000))


def _interrupted(error: ConnectionClosed) -> StreamInterrupted:
    frame = error.rcvd or error.sent
    return StreamInterrupted(frame.code, frame.reason) if frame else StreamInterrupted(1006, "")
