"""A socket whose query has the settings is a session at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.realtime.server.raw_client import RawClient, pcm_of, raw_client

if TYPE_CHECKING:
    from tests.running_server import RunningServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("subprotocol", ["moss.v1.json", "moss.v1.msgpack"])
async def test_the_first_message_may_be_a_response(
    running_server: RunningServer, subprotocol: str
) -> None:
    url = f"{running_server.ws_url}?voice=heart&audio.codec=pcm_s16le&generation.seed=4"
    async with raw_client(url, subprotocol) as client:
        await client.say("r1", "Hello.")  # with number 1, before anything was read
        got = await client.until("response.done")
        started = got[0]
        assert isinstance(started, dict)
        assert (started["type"], started["voice"]) == ("session.started", "heart")
        assert started["generation"]["seed"] == 4
        assert len(pcm_of(got)) > 0
        await client.send("session.start")
        error = (await client.until("error"))[-1]
        assert isinstance(error, dict)
        assert "has started already" in error["message"]


async def test_a_bad_query_is_refused_before_the_upgrade(running_server: RunningServer) -> None:
    for query, param in (("voise=heart", "voise"), ("stall_flush_ms=x", "stall_flush_ms")):
        with pytest.raises(InvalidStatus) as caught:
            await connect(f"{running_server.ws_url}?{query}")
        assert caught.value.response.status_code == 400
        assert caught.value.response.body is not None
        error = json.loads(caught.value.response.body)["error"]
        assert (error["code"], error["param"]) == ("invalid_field", param)


async def test_what_the_server_lacks_is_an_error_and_the_client_may_start_itself(
    running_server: RunningServer,
) -> None:
    async with raw_client(f"{running_server.ws_url}?voice=nobody") as client:
        error = await client.receive()
        assert isinstance(error, dict)
        assert (error["type"], error["code"]) == ("error", "voice_not_found")
        assert (await client.start())["voice"] == "bright"


async def test_a_query_cannot_change_what_a_token_fixes(
    run_server: Callable[..., RunningServer],
) -> None:
    key = "sk-0123456789abcdef"
    server = run_server(api_keys=(key,))
    async with httpx.AsyncClient(base_url=server.base_url, headers={"X-API-Key": key}) as http:
        body = {"session": {"voice": "heart"}}
        token = (await http.post("/v1/client_tokens", json=body)).json()["token"]
    for query, kind in (("voice=male", "error"), ("flow.mode=ack", "session.started")):
        async with connect(f"{server.ws_url}?token={token}&{query}") as websocket:
            answer = await RawClient(websocket).receive()
            assert isinstance(answer, dict)
            assert answer["type"] == kind
            assert answer.get("voice", "heart") == "heart"
