"""The client without asyncio: the same dialogue by plain calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from engine.fake import FakeScript
from engine.index_sound import read_ramp
from realtime.sdk import ServerRefused
from realtime.sdk.sync import Client

RAMP = FakeScript(sound="ramp", step_s=0.002)


def test_a_dialogue_by_plain_calls(run_server):
    server = run_server(RAMP)

    def words() -> Iterator[str]:
        for word in ["Of", "course!", "I", "have", "booked", "a", "table", "for", "two."]:
            yield word + " "

    with Client(server.base_url) as session:
        item = session.add_user("A table for tonight, please.")
        reply = session.say(words())
        sound = b"".join(reply)
        heard = read_ramp(np.frombuffer(sound, "<i2"))
        np.testing.assert_array_equal(heard, np.arange(len(heard)) % 65535)
        assert (reply.done.status, reply.gaps) == ("completed", [])
        long = session.say("This will take a while, so let me explain. " * 5)
        for _ in long:
            assert long.interrupt().status == "cancelled"
        assert len(session.history()) == 3
        assert session.items == session.history()
        session.delete(item.id)
        capsule = session.export()
        session.clear()
        assert session.history() == ()
    with Client(server.base_url, capsule=capsule) as session:
        assert [i.role for i in session.history()] == ["assistant", "assistant"]
        session.send_user_audio(bytes(48_000))
        assert session.commit_user_audio("Hm?").duration_ms == 1000


def test_replies_wait_flush_and_cancel(run_server):
    server = run_server(replace(RAMP, step_s=0.001))
    with Client(server.base_url) as session:
        assert session.say("Hello.").wait().status == "completed"
        first, second = session.say("word " * 100), session.say("Stays.")
        assert first.cancel().status == "cancelled"
        assert second.wait().status == "completed"


def test_what_goes_wrong_is_raised_here(run_server):
    server = run_server(RAMP)

    def broken() -> Iterator[str]:
        yield "Hello there, this begins well enough to be spoken."
        raise LookupError("the language model is gone")

    with Client(server.base_url) as session, pytest.raises(LookupError, match="is gone"):
        list(session.say(broken()))
    with pytest.raises(ServerRefused, match="nobody"), Client(server.base_url, voice="nobody"):
        pass
