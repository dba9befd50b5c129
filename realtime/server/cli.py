"""The command line: `moss-realtime serve | say | batch | bench | doctor | ...`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from engine.hub import CheckpointError
from realtime.protocol.limits import DEFAULT_LIMITS
from realtime.sdk import MossError
from realtime.server.app import create_app
from realtime.server.audio import FORMATS
from realtime.server.batch import Task, run_batch
from realtime.server.bridge import EngineError
from realtime.server.config import CALLER_KEY, ConfigError, ServerConfig, add_arguments, load_config
from realtime.server.doctor import run_checks
from realtime.server.greeting import greeting
from realtime.server.logs import configure_logging
from realtime.server.say import say
from realtime.server.say_remote import say_remote
from realtime.server.services import Services, build_services
from realtime.server.transport import SpeechSocketProtocol

logger = logging.getLogger(__name__)
ENGINE_SETTINGS = (
    *("profile", "model", "codec", "model_name", "variant", "voices", "data_dir", "device"),
    *("dtype", "threads"),
    *("deterministic", "warm_up", "fake", "log_level"),
)
PROGRAMS = {
    "bench": ("realtime.bench", "put a load on a server, and report what its listeners got"),
    "finetune": ("engine.train.finetune", "continue a checkpoint on your own recordings"),
    "evaluate": ("engine.train.evaluation", "measure how well a checkpoint or a server speaks"),
}
CLOSE_GRACE_S = 2.0
FAREWELL_S = 1.0  # for clients to fetch the dialogue that they take elsewhere
POLL_S = 0.02


class Server(uvicorn.Server):
    """uvicorn, which says when the engine is warm and lets responses finish before it stops."""

    def __init__(self, app: Starlette, services: Services, on_ready: Callable[[int], None]) -> None:
        config = services.config
        super().__init__(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.port,
                ws=SpeechSocketProtocol,
                ws_max_size=DEFAULT_LIMITS.item_message_bytes,
                ws_per_message_deflate=False,
                log_level=config.log_level,
                log_config=None,
                access_log=False,
                server_header=False,
            )
        )
        self.port = config.port
        self._services = services
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at once; `/readyz` is false and sessions are refused until the engine is warm."""
        await super().startup(sockets)
        if self.started:
            self.port = self.servers[0].sockets[0].getsockname()[1]

    async def main_loop(self) -> None:
        """Run until asked to exit, or until the engine turns out not to start."""
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(self._announce(), name="announce")
            await super().main_loop()
            waiting.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing new, give running responses their time, end the sessions, then close."""
        services = self._services
        services.draining = True
        for live in services.sessions:
            live.going_away(in_ms=int(1000 * services.config.drain_s))
        farewell_s = min(FAREWELL_S, services.config.drain_s)
        await self._wait_while(lambda: services.sessions.attached > 0, farewell_s)
        await self._wait_while(self._is_serving, services.config.drain_s - farewell_s)
        for live in services.sessions:
            live.shut_down()
        await self._wait_while(lambda: bool(services.sessions), CLOSE_GRACE_S)
        await super().shutdown(sockets)

    def _is_serving(self) -> bool:
        """Whether anything is being made, or has been made and is on its way."""
        services = self._services
        return services.bridge.busy or any(live.is_heard for live in services.sessions)

    async def _wait_while(self, condition: Callable[[], bool], limit_s: float) -> None:
        for _ in range(int(limit_s / POLL_S)):
            if self.force_exit or not condition():
                return
            await asyncio.sleep(POLL_S)

    async def _announce(self) -> None:
        await self._services.started.wait()
        if self._services.startup_error:
            self.should_exit = True
        else:
            self._on_ready(self.port)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `moss-realtime`."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in PROGRAMS:
        sys.exit(_run_program(PROGRAMS[words[0]][0], words[1:]))
    arguments = _parser().parse_args(words)
    try:
        config = load_config(vars(arguments), os.environ)
        configure_logging(config)
        sys.exit(arguments.command(config, arguments))
    except (ConfigError, CheckpointError, EngineError, MossError, OSError) as error:
        sys.exit(f"moss-realtime: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="moss-realtime", description="A realtime speech server for voice agents."
    )
    commands = parser.add_subparsers(
        required=True, metavar=" | ".join(("serve", "say", "batch", "doctor", *PROGRAMS))
    )
    serve = commands.add_parser("serve", help="serve WebSocket, REST and the page")
    add_arguments(serve)
    serve.set_defaults(command=_serve)
    speak = commands.add_parser("say", help="speak text into a sound file")
    speak.add_argument("text", help="what to say; `-` reads standard input as it arrives")
    speak.add_argument("-o", "--output", default="out.wav", help="wav, flac, mp3, opus or pcm file")
    speak.add_argument("--voice", help="name or id of a voice")
    speak.add_argument("--seed", type=int, default=0, help="the same seed gives the same sound")
    speak.add_argument(
        "--server", metavar="URL", help=f"have a server speak; {CALLER_KEY} holds the key it wants"
    )
    add_arguments(speak, only=ENGINE_SETTINGS)
    speak.set_defaults(command=_say, log_level="warning")
    _add_batch(commands.add_parser("batch", help="speak each line of a file into its own file"))
    doctor = commands.add_parser("doctor", help="check that this machine can serve")
    add_arguments(doctor, only=(*ENGINE_SETTINGS, "host", "port", "insecure", "api_keys_file"))
    doctor.set_defaults(command=_doctor)
    for name, (_, purpose) in PROGRAMS.items():
        commands.add_parser(name, help=purpose)
    return parser


def _add_batch(batch: argparse.ArgumentParser) -> None:
    batch.add_argument(
        "input", type=Path, help="a JSON object of /v1/audio/speech a line; see --out"
    )
    batch.add_argument(
        "--out",
        type=Path,
        required=True,
        help="directory; a file is named by the line's `id`, else"
        " its number. What is done there is skipped",
    )
    batch.add_argument("--voice", help="of lines that name none")
    batch.add_argument("--format", default="wav", choices=FORMATS, help="of lines that name none")
    batch.add_argument("--seed", type=int, default=0, help="of lines that name none")
    batch.add_argument("--parallel", type=int, default=8, help="lines that are spoken side by side")
    batch.add_argument(
        "--server", metavar="URL", help=f"have a server speak; {CALLER_KEY} holds the key it wants"
    )
    add_arguments(batch, only=ENGINE_SETTINGS)
    batch.set_defaults(command=_batch, log_level="warning")  # not between the bar's


def _serve(config: ServerConfig, arguments: argparse.Namespace) -> int:
    logger.info("config %s", " ".join(f"{k}={v!r}" for k, v in config.shown().items()))
    services = build_services(config)

    def greet(port: int) -> None:
        first = services.models.first.speech.capabilities
        print(greeting(dataclasses.replace(config, port=port), first), flush=True)

    server = Server(create_app(services), services, greet)
    server.run()
    if services.startup_error:
        raise EngineError(services.startup_error)
    return 0 if server.started else 1


def _say(config: ServerConfig, arguments: argparse.Namespace) -> int:
    text, output, voice = arguments.text, arguments.output, arguments.voice
    if arguments.server:
        key = os.environ.get(CALLER_KEY)
        seed = arguments.seed
        say_remote(arguments.server, text, output, api_key=key, voice=voice, seed=seed)
    else:
        say(config, text, output, voice=voice, seed=arguments.seed)
    return 0


def _batch(config: ServerConfig, arguments: argparse.Namespace) -> int:
    if arguments.parallel < 1:
        raise ConfigError(f"--parallel must be at least 1, not {arguments.parallel}")
    defaults = {"response_format": arguments.format, "seed": arguments.seed}
    if arguments.voice:
        defaults["voice"] = arguments.voice
    task = Task(arguments.input, arguments.out, defaults, arguments.parallel)
    return run_batch(config, task, arguments.server, os.environ.get(CALLER_KEY))


def _run_program(module: str, words: Sequence[str]) -> int:
    """Run it in a process of its own: this one has loaded a server, but never loads torch."""
    child = subprocess.Popen([sys.executable, "-m", module, *words])
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # the terminal has told the child as well: it saves and ends
            continue


def _doctor(config: ServerConfig, arguments: argparse.Namespace) -> int:
    return run_checks(config)


if __name__ == "__main__":
    main()
