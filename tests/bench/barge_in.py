"""Time to first audio after a barge-in beside that after a clean turn, in one long dialogue.

`python -m tests.bench.barge_in [--minutes 10] [--turns 10]` prints JSON. A server with the shipped
voice runs in a process of its own; the dialogue begins with so many minutes of sound, as a capsule
gives them. Clean and interrupted turns alternate, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import numpy as np

from engine.hub import DEFAULT_MODEL_DIR
from engine.models.realtime_prompt import RealtimePrompt
from realtime.protocol.capsule import (
    Capsule,
    CapsuleItem,
    CapsulePart,
    CapsulePiece,
    write_capsule,
)
from realtime.sdk import Client, Session
from realtime.session.capsule import pack_codes
from tests.bench.measure import percentiles, ratio, report
from tests.server_process import server_process

LONG = "There is a tower, a river and a hill, and all of it is a short walk away from here. "
SHORT = "Yes, of course, right away."
FRAMES_PER_S = 12.5
TURN_FRAMES = 250  # 20 s
INTERRUPT_AFTER_MS = 1000


def long_dialogue(minutes: float, model: str, n_vq: int, codebook_size: int) -> bytes:
    """A capsule of so many minutes of noise, the user's and ours in turn."""
    random = np.random.default_rng(0)
    items = []
    for number in range(int(minutes * 60 * FRAMES_PER_S / TURN_FRAMES)):
        codes = random.integers(0, codebook_size, (TURN_FRAMES, n_vq)).astype(np.uint16)
        text = f"This is turn number {number} of a long dialogue."
        part = CapsulePart(
            pieces=(CapsulePiece(spoken=text, written=text),),
            codes=pack_codes(codes, codebook_size),
        )
        role = "assistant" if number % 2 else "user"
        items.append(CapsuleItem(id=f"turn_{number}", role=role, parts=(part,)))
    return write_capsule(
        Capsule(model=model, n_vq=n_vq, codebook_size=codebook_size, items=tuple(items))
    )


async def first_audio_ms(session: Session) -> float:
    """Say something short to its end; return when its first sound came."""
    started = time.perf_counter()
    reply = session.say(SHORT)
    first_ms = 0.0
    async for _ in reply:
        first_ms = first_ms or 1000 * (time.perf_counter() - started)
    return first_ms


async def turn(session: Session, *, interrupted: bool, pause_s: float) -> float:
    """Have a turn, pause while the user speaks, and measure the next."""
    reply = session.say(LONG)
    async for _ in reply:
        if interrupted and reply.taken_ms >= INTERRUPT_AFTER_MS:
            await reply.interrupt()
    await asyncio.sleep(pause_s)
    await session.add_user("And then?")
    return await first_audio_ms(session)


async def measure(url: str, capsule: bytes, turns: int, pause_s: float) -> dict[str, object]:
    """Alternate clean and interrupted turns."""
    clean_ms, after_ms = [], []
    async with Client(url, capsule=capsule) as session:
        await first_audio_ms(session)
        for _ in range(turns):
            clean_ms.append(await turn(session, interrupted=False, pause_s=pause_s))
            after_ms.append(await turn(session, interrupted=True, pause_s=pause_s))
    return {
        "clean_first_audio_ms": percentiles(clean_ms),
        "barge_in_first_audio_ms": percentiles(after_ms),
        "ratio": ratio(after_ms, clean_ms),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--pause-s", type=float, default=1.5)
    asked = parser.parse_args()
    prompt = RealtimePrompt.from_checkpoint(DEFAULT_MODEL_DIR)
    capsule = long_dialogue(asked.minutes, "moss-tts-realtime", prompt.n_vq, prompt.audio_pad)
    grid_rows = str(int(asked.minutes * 60 * FRAMES_PER_S * 1.5) + 2048)
    with server_process("--max-grid-rows", grid_rows, "--log-level", "warning") as (url, _):
        figures = asyncio.run(measure(url, capsule, asked.turns, asked.pause_s))
    settings = {"minutes": asked.minutes, "turns": asked.turns, "pause_s": asked.pause_s}
    report("barge_in", settings | {"capsule_kib": len(capsule) // 1024} | figures)


if __name__ == "__main__":
    main()
