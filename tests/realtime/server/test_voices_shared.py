"""Voices shared by real processes: what one server stores the others speak with; crashes."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from realtime.sdk import Client, ServerRefused
from realtime.server.voice_store import VoiceStore
from tests.realtime.server.recordings import packed, tone
from tests.realtime.server.test_voice_store import add, directories, opened

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
VOICES = "/v1/voices"


@contextmanager
def server_process(data_dir: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "realtime.server.cli", "serve", "--fake", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(data_dir), "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as server:
        assert server.stdout is not None
        url = re.search(r"http://[\d.:]+", server.stdout.readline())
        try:
            assert url
            yield url[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=60)


async def starts_with(url: str, voice: str) -> str | None:
    """The voice of a session that asks for one, or why it does not start."""
    try:
        async with Client(url, voice=voice) as session:
            return session.started.voice
    except ServerRefused as refusal:
        return refusal.code


def test_a_voice_stored_by_one_server_is_everybodys_at_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        urls = [stack.enter_context(server_process(tmp_path)) for _ in range(2)]
        here, there = (stack.enter_context(httpx.Client(base_url=url)) for url in urls)
        for turn in range(5):
            files = {"audio": ("a.wav", packed(tone(2 + turn)))}
            made = here.post(VOICES, data={"name": "Mia"}, files=files).json()
            assert there.get(f"{VOICES}/mia").json()["id"] == made["id"]
            here, there = there, here
        speech = {"input": "Hi.", "voice": "mia"}
        assert there.post("/v1/audio/speech", json=speech).headers["x-voice"] == "Mia"
        assert [asyncio.run(starts_with(url, made["id"])) for url in urls] == ["Mia", "Mia"]
        here.patch(f"{VOICES}/mia", json={"name": "Zoe"}).raise_for_status()
        assert there.get(VOICES).json()["data"][-1]["name"] == "Zoe"
        assert asyncio.run(starts_with(str(there.base_url), "mia")) == "voice_not_found"
        assert there.delete(f"{VOICES}/zoe").json()["deleted"] is True
        assert [asyncio.run(starts_with(url, "zoe")) for url in urls] == ["voice_not_found"] * 2


AFTER = {"replace": ["Mia"], "rename": ["Zoe"], "transcript": ["Mia"], "remove": []}
CRASH = """
import asyncio, os, sys
from pathlib import Path
from tests.realtime.server.test_voice_store import add, opened

root, change, fatal = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
calls = 0

def dying(call):
    def wrapped(*args, **kwargs):
        global calls
        calls += 1
        if calls == fatal:
            os.kill(os.getpid(), 9)
        return call(*args, **kwargs)
    return wrapped

for name in ("fsync", "rename", "mkdir", "link", "rmdir", "unlink"):
    setattr(os, name, dying(getattr(os, name)))

async def main():
    store = opened(root)
    if change == "replace":
        await add(store, "Mia", seconds=3)
    elif change == "rename":
        await store.update("Mia", name="Zoe")
    elif change == "transcript":
        await store.update("Mia", ref_text="la")
    else:
        await store.remove("Mia")

asyncio.run(main())
"""


def change_and_die(root: Path, change: str, fatal: int) -> int:
    """Make a change in a process that dies at its `fatal`th system call that writes."""
    command = [sys.executable, "-c", CRASH, str(root), change, str(fatal)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def state_of(store: VoiceStore) -> list[tuple[str, str, int]]:
    return [(voice.id, voice.name, len(voice.codes)) for voice in store.all()]


@pytest.mark.parametrize("change", AFTER)
def test_a_server_killed_in_a_change_leaves_the_state_before_or_after(
    tmp_path: Path, change: str
) -> None:
    original = tmp_path / "0"
    before = asyncio.run(add(opened(original), "Mia", ref_text="lo"))
    seen = []
    for fatal in range(1, 60):
        root = tmp_path / str(fatal)
        shutil.copytree(original, root)
        status = change_and_die(root, change, fatal)
        store = opened(root)
        state = state_of(store)
        if state not in seen:
            seen.append(state)
        # The next change tidies up, and is not held up by a lock that died with its holder.
        asyncio.run(add(store, "Ann", seconds=5))
        assert len(directories(root)) == len(state) + 1
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert fatal > 3
    assert seen[0] == [(before.id, "Mia", len(before.codes))]
    assert len(seen) == 2, "the state before, then the state after, and none between"
    assert [name for _, name, _ in seen[1]] == AFTER[change]
