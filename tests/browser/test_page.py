"""The page against a server: what the loudspeaker gets, and what the person sees.

A recorder sits between the page's player and its loudspeaker, at 48 kHz. The server sends 24 kHz,
so every second sample recorded is one the server sent, to the bit.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.fake import FakeScript
from engine.index_sound import chirp
from realtime.protocol.frames import AudioFrame

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocket

pytestmark = pytest.mark.browser

HERE = Path(__file__).parent
RATE_HZ = 48000
RAMP = 240  # 5 ms
FADE = 384  # 8 ms
DONE_MS = 60_000
REPLY = "Congratulations! I knew they would see how good you are."


class Talk:
    """A page joined to a server: its messages both ways, its sound, and its controls."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.sent: list[dict[str, Any]] = []
        self.received: list[dict[str, Any]] = []
        self.frames: list[AudioFrame] = []
        page.on("websocket", self._listen)

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framesent", lambda data: self.sent.append(json.loads(data)))
        socket.on("framereceived", self._note)

    def _note(self, data: str | bytes) -> None:
        if isinstance(data, bytes):
            self.frames.append(AudioFrame.parse(data))
        else:
            self.received.append(json.loads(data))

    def open(self, url: str) -> None:
        self.page.goto(url)
        self.page.wait_for_selector("#connection[data-state=open]")

    def type(self, text: str) -> None:
        """Speak a reply with the keyboard alone; the reply field has the focus."""
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def wait_until_speaking(self) -> None:
        self.page.wait_for_selector(".item.speaking", timeout=DONE_MS)

    def wait_until_silent(self) -> None:
        self.page.wait_for_selector("#stop:disabled", timeout=DONE_MS)
        self.page.wait_for_timeout(50)  # for the last ramp to be recorded

    def wait_for(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Return the newest message of a type from the server, once there are `count`."""
        for _ in range(DONE_MS // 20):
            found = [message for message in self.received if message["type"] == kind]
            if len(found) >= count:
                return found[-1]
            self.page.wait_for_timeout(20)
        pytest.fail(f"no {kind} came")

    def sent_of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.sent if message["type"] == kind]

    def pcm(self, stream: int) -> NDArray[np.float32]:
        """What the server sent of a stream, as the page reads it."""
        frames = [frame for frame in self.frames if frame.stream == stream]
        assert [frame.seq for frame in frames] == list(range(len(frames)))
        data = b"".join(frame.payload for frame in frames)
        return (np.frombuffer(data, "<i2") / 32767).astype(np.float32)

    def recording(self) -> NDArray[np.float32]:
        text = self.page.evaluate("recording()")
        return np.frombuffer(base64.b64decode(text), "<f4")

    def dialogue(self) -> list[tuple[str, str]]:
        rows = self.page.locator("#dialogue > li")
        roles, texts = rows.locator(".role"), rows.locator(".said")
        return list(zip(roles.all_text_contents(), texts.all_text_contents(), strict=True))


@pytest.fixture
def talk(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """A page whose sound is recorded; the recorder's module lies beside the page's own."""
    web = tmp_path / "web"
    shutil.copytree(HERE.parents[1] / "web", web)
    shutil.copy(HERE / "tap_worklet.js", web)
    monkeypatch.setattr("realtime.server.app.WEB_DIR", web)
    page.add_init_script(path=HERE / "tap.js")
    return Talk(page)


def find_gaps(recording: NDArray[np.float32], sent: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Check that a recording is `sent` and nothing else; give the gaps as (sample sent, length).

    Silence may come before, and the 5 ms ramps and silence between and after.
    """
    first = int(np.flatnonzero(sent)[0])
    begin = int(np.flatnonzero(recording)[0])
    starts = [at for at in range(begin, begin + RAMP + 4) if at >= 2 * first]
    at = next(a - 2 * first for a in starts if recording[a] == sent[first])
    gaps, done = [], 0
    while True:
        same = recording[at::2][: len(sent) - done] == sent[done:]
        run = len(same) if same.all() else int(np.argmin(same))
        done, at = done + run, at + 2 * run
        if done == len(sent):
            break
        key = sent[done : done + 48]
        span = 2 * len(key)
        places = range(at, len(recording) - span)
        resumed = next((m for m in places if (recording[m : m + span : 2] == key).all()), None)
        assert resumed is not None, f"sample {done} of {len(sent)} was not played"
        gaps.append((done, resumed - at))
        at = resumed
    assert not recording[at + RAMP :].any(), "something follows the last sample"
    return gaps


def shown_underruns(talk: Talk) -> int:
    return int(talk.page.inner_text("[data-measure=underruns]"))


def test_what_is_typed_is_heard_from_first_to_last_sample(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    talk.type(REPLY)
    done = talk.wait_for("response.done")
    talk.wait_until_silent()

    sent = talk.pcm(1)
    assert len(sent) == round(done["audio_ms"] * 24) > 24000
    np.testing.assert_array_equal(sent, np.rint(chirp(0, len(sent), 24000) * 32767) / 32767)
    recording = talk.recording()
    assert len(find_gaps(recording, sent)) == shown_underruns(talk)
    assert talk.dialogue() == [("Assistant", REPLY)]
    assert re.fullmatch(r"\d+ ms", talk.page.inner_text("[data-measure=first-audio]"))
    assert talk.sent_of("playback")[-1]["state"] == "done"
    assert talk.sent_of("playback")[-1]["played_ms"] == pytest.approx(done["audio_ms"])


def test_sound_between_the_samples_is_interpolated(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    talk.type("Hi.")
    talk.wait_for("response.done")
    talk.wait_until_silent()
    sent, recording = talk.pcm(1), talk.recording()
    if not find_gaps(recording, sent):
        start = int(np.flatnonzero(recording)[0]) - 1
        heard = recording[start : start + 2 * len(sent)]
        middle = slice(64, -64)
        expected = chirp(0, len(heard), RATE_HZ)
        np.testing.assert_allclose(heard[middle], expected[middle], atol=2e-3)


def test_gaps_of_slow_text_are_no_underruns(talk: Talk, run_server: Callable[..., Any]) -> None:
    server = run_server(script=FakeScript(frames_per_id=1))  # 80 ms a word, which comes in 200
    text = "the cat sat on the mat and the dog ran to the door " * 2
    talk.open(server.base_url)
    talk.page.check("#paced")
    talk.page.locator("#rate").fill("5")
    talk.page.focus("#reply")
    talk.type(text)
    talk.wait_until_speaking()
    talk.wait_for("response.done")
    talk.wait_until_silent()
    assert len(talk.sent_of("response.text")) == len(text.split())
    gaps = find_gaps(talk.recording(), talk.pcm(1))
    assert len(gaps) > shown_underruns(talk)


def test_stop_silences_interrupts_and_shows_what_was_heard(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    talk.type(REPLY)
    talk.wait_until_speaking()
    talk.page.wait_for_timeout(1000)
    talk.page.keyboard.press("Escape")
    truncated = talk.wait_for("item.truncated")
    talk.page.wait_for_selector("del")
    talk.page.wait_for_timeout(200)

    recording, [interrupt] = talk.recording(), talk.sent_of("interrupt")
    last = int(np.flatnonzero(recording)[-1])
    assert len(recording) - last > RATE_HZ / 10, "sound went on"
    whole = talk.pcm(1)
    start = last + 1 - FADE  # where the fade began
    begin = int(np.flatnonzero(recording)[0]) - 1
    heard_ms = (start - begin) / (RATE_HZ / 1000)
    assert interrupt["played"]["response_id"] == "r1"
    assert 0 < interrupt["played"]["ms"] <= heard_ms + 1
    assert interrupt["played"]["ms"] > heard_ms - 500, "far less was claimed than was heard"
    assert truncated["audio_end_ms"] == interrupt["played"]["ms"] // 80 * 80
    loudest = 0.5 * (1 - np.arange(FADE) / FADE)  # of a fading chirp
    assert np.all(np.abs(recording[start : last + 1]) <= loudest + 1e-3)
    before = recording[begin:start:2]
    if shown_underruns(talk) == 0:
        np.testing.assert_array_equal(before, whole[: len(before)])
    [(role, text)] = talk.dialogue()
    assert (role, text) == ("Assistant", REPLY)
    assert talk.page.inner_text("del") == REPLY[len(truncated["text"]) :]
    assert "stopped" in talk.page.inner_text(".note")


def test_after_a_stop_nothing_of_the_old_reply_is_heard(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    talk.type(REPLY)
    talk.wait_until_speaking()
    talk.page.keyboard.press("Escape")
    talk.type("And then?")
    talk.wait_for("response.done", 2)
    talk.wait_until_silent()

    recording, second = talk.recording(), talk.pcm(2)
    assert len(second)
    fresh = recording[-2 * len(second) - RATE_HZ :]
    quiet = np.convolve(fresh == 0, np.ones(RAMP), "valid") == RAMP
    find_gaps(fresh[int(np.argmax(quiet)) :], second)
    epochs = [frame.epoch for frame in talk.frames]
    assert set(epochs) == {0, 1}
    assert epochs == sorted(epochs)


def test_sound_under_way_at_a_stop_is_dropped(talk: Talk, running_server: Any) -> None:
    old: list[bytes] = []

    def proxy(socket: Any) -> None:
        server = socket.connect_to_server()

        def to_page(data: str | bytes) -> None:
            old.extend([data] if isinstance(data, bytes) else [])
            socket.send(data)

        def to_server(data: str) -> None:
            server.send(data)
            if json.loads(data)["type"] == "interrupt":
                for frame in old:
                    socket.send(frame)

        server.on_message(to_page)
        socket.on_message(to_server)

    talk.page.route_web_socket("**/v1/speech", proxy)
    talk.open(running_server.base_url)
    talk.type(REPLY)
    talk.wait_until_speaking()
    talk.page.keyboard.press("Escape")
    talk.page.wait_for_selector("#stop:disabled")
    talk.page.wait_for_timeout(500)
    last = int(np.flatnonzero(talk.recording())[-1])
    assert len(talk.recording()) - last > RATE_HZ / 4


def test_stop_before_any_sound(talk: Talk, run_server: Callable[..., Any]) -> None:
    server = run_server(script=FakeScript(block_after_frames=0))
    talk.open(server.base_url)
    talk.type(REPLY)
    talk.wait_for("response.started")
    talk.page.keyboard.press("Escape")
    talk.wait_for("response.done")
    [interrupt] = talk.sent_of("interrupt")
    assert interrupt["played"] == {"response_id": "r1", "ms": 0}
    talk.page.wait_for_selector("#empty:not([hidden])")
    assert talk.dialogue() == []


def test_replies_wait_for_each_other(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    talk.type("First.")
    talk.type("Second.")
    talk.wait_for("response.done", 2)
    talk.wait_until_silent()
    assert talk.dialogue() == [("Assistant", "First."), ("Assistant", "Second.")]
    done = [message for message in talk.sent_of("playback") if message["state"] == "done"]
    assert [message["response_id"] for message in done] == ["r1", "r2"]


def test_the_user_is_part_of_the_dialogue(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    talk.page.keyboard.press("Shift+Tab")  # the Add button
    talk.page.keyboard.press("Shift+Tab")  # the field before it
    talk.type("I got the job!")
    talk.wait_for("item.created")
    talk.page.keyboard.press("Tab")
    talk.page.keyboard.press("Tab")
    talk.type(REPLY)
    talk.wait_for("response.done")
    talk.wait_until_silent()
    assert talk.dialogue() == [("User", "I got the job!"), ("Assistant", REPLY)]


def test_the_voice_can_be_chosen(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    voice = talk.page.locator("#voice")
    talk.page.wait_for_function("document.getElementById('voice').options.length > 1")
    names = voice.locator("option").all_inner_texts()
    current = talk.wait_for("session.started")["voice"]
    assert voice.input_value() == current
    other = next(name for name in names if name != current)
    voice.select_option(other)
    talk.wait_for("session.updated")
    assert [message["voice"] for message in talk.sent_of("session.update")] == [other]


def test_sound_that_the_system_holds_back_waits(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    talk.type(REPLY)
    talk.wait_until_speaking()
    talk.page.evaluate("suspendSound()")
    talk.page.click("#unlock")
    talk.wait_for("response.done")
    talk.wait_until_silent()
    assert not talk.page.is_visible("#unlock")
    assert len(find_gaps(talk.recording(), talk.pcm(1))) == shown_underruns(talk)


def test_a_failed_reply_says_why(talk: Talk, run_server: Callable[..., Any]) -> None:
    server = run_server(script=FakeScript(fail_after_frames=5))
    talk.open(server.base_url)
    talk.type(REPLY)
    talk.wait_for("response.done")
    talk.wait_until_silent()
    assert "ended early" in talk.page.inner_text("#problem")


def test_a_lost_connection_is_mended_and_the_text_kept(talk: Talk, running_server: Any) -> None:
    sockets: list[Any] = []
    starts: list[dict[str, Any]] = []

    def proxy(socket: Any) -> None:
        server = socket.connect_to_server()

        def forward(data: str) -> None:
            message = json.loads(data)
            starts.extend([message] if message["type"] == "session.start" else [])
            server.send(data)

        socket.on_message(forward)
        sockets.append(socket)

    talk.page.route_web_socket("**/v1/speech", proxy)
    talk.open(running_server.base_url)
    talk.type("First.")
    talk.page.wait_for_selector(".note:has-text(' s')")
    talk.wait_until_silent()
    sockets[0].close(code=1011)
    talk.page.wait_for_selector("#connection[data-state=lost]")
    assert "lost" in talk.page.inner_text("#problem")
    talk.page.wait_for_selector("#connection[data-state=open]")
    assert starts[-1]["history"] == [{"role": "assistant", "text": "First."}]
    talk.type("Second.")
    talk.page.wait_for_selector("li:nth-child(2) .note:has-text(' s')")
    assert talk.dialogue() == [("Assistant", "First."), ("Assistant", "Second.")]


@pytest.mark.parametrize("code", [1000, 4400, 4408, 4409])
def test_a_final_close_waits_for_the_person(talk: Talk, running_server: Any, code: int) -> None:
    sockets: list[Any] = []

    def proxy(socket: Any) -> None:
        socket.connect_to_server()
        sockets.append(socket)

    talk.page.route_web_socket("**/v1/speech", proxy)
    talk.open(running_server.base_url)
    sockets[0].close(code=code)
    talk.page.wait_for_selector("#connection[data-state=closed]")
    assert talk.page.inner_text("#problem")
    assert talk.page.is_disabled("#speak")
    talk.page.click("#reconnect")
    talk.page.wait_for_selector("#connection[data-state=open]")


def test_a_narrow_page_needs_no_sideways_scrolling(talk: Talk, running_server: Any) -> None:
    talk.page.set_viewport_size({"width": 320, "height": 600})
    talk.open(running_server.base_url)
    talk.type("W" * 200)
    talk.wait_until_speaking()
    assert talk.page.evaluate("document.documentElement.scrollWidth") == 320


def test_every_control_has_a_name_and_a_visible_focus(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    seen = []
    for _ in range(12):
        talk.page.keyboard.press("Tab")
        seen.append(
            talk.page.evaluate(
                """() => {
                  const one = document.activeElement, style = getComputedStyle(one);
                  const label = one.labels?.[0] ?? one;
                  const name = one.getAttribute("aria-label") ?? label.innerText;
                  return [one.id, name.trim() !== "", parseFloat(style.outlineWidth)];
                }"""
            )
        )
    ids = [id for id, named, outline in seen if id]
    assert all(named and outline >= 2 for id, named, outline in seen if id)
    assert {"speak", "voice", "user", "add", "reply"} <= set(ids)


def test_what_is_spoken_is_announced(talk: Talk, running_server: Any) -> None:
    talk.open(running_server.base_url)
    talk.type("Good morning, it is a fine day.")
    talk.wait_until_speaking()
    assert talk.page.get_attribute("#captions", "aria-live") == "polite"
    assert talk.page.text_content("#captions") == "Good morning, it is a fine day."


def test_a_browser_without_worklets_says_so(page: Page, running_server: Any) -> None:
    page.add_init_script("delete window.AudioWorkletNode")
    page.goto(running_server.base_url)
    page.wait_for_selector("#speak:enabled")
    page.fill("#reply", REPLY)
    page.click("#speak")
    assert "https" in page.inner_text("#problem")
    assert page.input_value("#reply") == REPLY


@pytest.mark.slow
def test_the_shipped_voice_is_heard_as_it_was_sent(
    talk: Talk, run_server: Callable[..., Any]
) -> None:
    server = run_server(script=None)
    talk.open(server.base_url)
    talk.type("Hello there, how are you today?")
    done = talk.wait_for("response.done")
    talk.wait_until_silent()

    sent = talk.pcm(1)
    assert done["status"] == "completed"
    assert len(sent) == round(done["audio_ms"] * 24) > 0
    assert np.sqrt(np.mean(sent**2)) > 0.005, "the voice is silent"
    assert len(find_gaps(talk.recording(), sent)) == shown_underruns(talk)
