"""The page's modules without a server: golden wire frames, resampling, pacing, captions."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.index_sound import chirp

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

WIRE = json.loads((Path(__file__).parents[1] / "vectors" / "wire" / "frames.json").read_text())
HELPERS = """
  const bytes = (text) => Uint8Array.from(text.match(/../g) ?? [], (two) => parseInt(two, 16));
  const hex = (data) => Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const floats = (text) =>
    new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const base64 = (samples) =>
    btoa(Array.from(new Uint8Array(samples.buffer), (b) => String.fromCharCode(b)).join(""));
"""


@pytest.fixture(scope="module")
def call(module_page: Page, static_url: str) -> Any:
    """`call("frames.js", "module => ...", argument)` runs an expression on a module of the page."""

    def call(module: str, function: str, argument: Any = None) -> Any:
        script = f"""async ([url, argument]) => {{
          {HELPERS}
          const module = await import(url);
          return ({function})(argument);
        }}"""
        return module_page.evaluate(script, [static_url + module, argument])

    return call


@pytest.mark.parametrize("vector", WIRE["frames"], ids=lambda vector: vector["name"])
def test_frames_are_read_like_the_golden_ones(call: Any, vector: dict[str, Any]) -> None:
    frame = call(
        "frames.js",
        """(text) => {
          const frame = module.parseFrame(bytes(text).buffer);
          return { ...frame, payload: hex(frame.payload) };
        }""",
        vector["hex"],
    )
    assert frame == {key: vector[key] for key in frame}


def test_a_short_frame_is_refused(call: Any) -> None:
    message = call(
        "frames.js",
        """() => {
          try { module.parseFrame(new ArrayBuffer(15)); } catch (error) { return error.message; }
        }""",
    )
    assert "16 bytes, not 15" in message


@pytest.mark.parametrize(("epoch", "other", "before"), WIRE["epoch_is_before"])
def test_epochs_compare_by_serial_number(call: Any, epoch: int, other: int, before: bool) -> None:
    assert call("frames.js", "([a, b]) => module.epochIsBefore(a, b)", [epoch, other]) is before


def test_epochs_wrap(call: Any) -> None:
    assert call("frames.js", "(epoch) => module.nextEpoch(epoch)", 65535) == 0


@pytest.mark.parametrize("channels", [1, 2])
def test_pcm_becomes_the_mean_of_its_channels(call: Any, channels: int) -> None:
    pcm = np.array([[-32767, -32767], [0, 2], [32767, 32767], [1, 5]], "<i2")[:, :channels]
    mono = call(
        "frames.js",
        "([text, channels]) => [...module.pcm16ToMono(bytes(text), channels)]",
        [pcm.tobytes().hex(), channels],
    )
    np.testing.assert_allclose(mono, pcm.mean(axis=1) / 32767, atol=1e-7)


def resampled(call: Any, sound: NDArray[np.float32], sizes: list[int], rates: list[int]) -> Any:
    text = call(
        "resample.js",
        """([text, sizes, [from, to]]) => {
          const sound = floats(text), resampler = new module.Resampler(from, to), out = [];
          for (let at = 0, i = 0; at < sound.length || i === 0; at += sizes[i++ % sizes.length]) {
            const end = at + sizes[i % sizes.length];
            out.push(...resampler.process(sound.slice(at, end), end >= sound.length));
          }
          return base64(new Float32Array(out));
        }""",
        [base64.b64encode(sound.astype("<f4").tobytes()).decode(), sizes, rates],
    )
    return np.frombuffer(base64.b64decode(text), "<f4")


@pytest.mark.parametrize("sizes", [[1920], [1], [7, 1, 500], [100000]], ids=str)
def test_doubling_the_rate_keeps_every_sample(call: Any, sizes: list[int]) -> None:
    sound = chirp(0, 24000 if sizes != [1] else 500, 24000)
    out = resampled(call, sound, sizes, [24000, 48000])
    assert len(out) == 2 * len(sound)
    np.testing.assert_array_equal(out[::2], sound)
    middle = slice(64, len(out) - 64)
    expected = chirp(0, len(out), 48000)
    np.testing.assert_allclose(out[middle], expected[middle], atol=2e-4)


@pytest.mark.parametrize("out_rate", [16000, 44100, 48000, 96000])
def test_any_rate_keeps_length_and_shape(call: Any, out_rate: int) -> None:
    sound = chirp(0, 24000, 24000)
    out = resampled(call, sound, [1920], [24000, out_rate])
    assert len(out) == out_rate
    middle = slice(100, len(out) - 100)
    np.testing.assert_allclose(out[middle], chirp(0, out_rate, out_rate)[middle], atol=2e-3)


def test_an_even_rate_is_left_alone(call: Any) -> None:
    sound = chirp(0, 5000, 48000)
    out = resampled(call, sound, [960], [48000, 48000])
    np.testing.assert_array_equal(out, sound)


def test_a_stream_without_samples_has_none(call: Any) -> None:
    assert len(resampled(call, np.zeros(0, np.float32), [10], [24000, 48000])) == 0


TEXTS = [
    "Hello there, how are you?",
    "  two  spaces\n\nand lines ",
    "你好。世界 hello",
    "x" * 5000,
    "👍🏽 ok",
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:12])
@pytest.mark.parametrize("words_per_second", [0, 1000])
def test_pieces_are_the_whole_text(call: Any, text: str, words_per_second: int) -> None:
    pieces = call(
        "pacing.js",
        """async ([text, rate]) => {
          const all = [], signal = new AbortController().signal;
          for await (const piece of module.pieces(text, rate, signal)) all.push(piece);
          return all;
        }""",
        [text, words_per_second],
    )
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= 4096 for piece in pieces)
    if words_per_second and " " in text.strip():
        assert len(pieces) > 1


def test_pieces_stop_when_told(call: Any) -> None:
    pieces = call(
        "pacing.js",
        """async () => {
          const all = [], abort = new AbortController();
          for await (const piece of module.pieces("one two three four", 200, abort.signal)) {
            all.push(piece);
            if (all.length === 2) abort.abort();
          }
          return all;
        }""",
    )
    assert pieces == ["one ", "two "]


def test_captions_come_in_groups_of_words(call: Any) -> None:
    groups = call(
        "captions.js",
        """() => {
          const region = document.createElement("p"), captions = new module.Captions(region);
          const text = "Well, this goes on and on without a comma for a while. End";
          const seen = [];
          for (let i = 1; i <= text.length; i++) {
            captions.update("r1", text.slice(0, i), i === text.length);
            if (region.childElementCount > seen.length) seen.push(region.lastChild.textContent);
          }
          captions.update("r2", "Next.", true);
          return [seen, region.textContent];
        }""",
    )
    assert groups == [
        ["Well,", " this goes on and on without a comma ", "for a while.", " End"],
        "Next.",
    ]


def test_dialogue_rows_show_what_was_not_heard(call: Any) -> None:
    rows = call(
        "dialogue.js",
        "([items, responses]) => module.dialogueRows(items, responses)",
        [
            [
                {"id": "a", "role": "user", "text": "Hi", "audio_ms": 0, "in_context": True},
                {
                    "id": "b",
                    "role": "assistant",
                    "text": "Nice to",
                    "generated_text": "Nice to see you",
                    "audio_ms": 1280,
                    "in_context": True,
                    "exact": False,
                },
            ],
            [{"id": "r2", "itemId": None, "text": "And", "state": "waiting"}],
        ],
    )
    assert [(row["role"], row["heard"], row["unheard"]) for row in rows] == [
        ("user", "Hi", ""),
        ("assistant", "Nice to", " see you"),
        ("assistant", "And", ""),
    ]
    assert rows[1]["note"] == "1.3 s · stopped, words estimated"
