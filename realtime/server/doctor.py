"""`moss-realtime doctor`: check that this machine can serve, and say how to mend what cannot."""

from __future__ import annotations

import errno
import importlib
import socket
from collections.abc import Callable
from pathlib import Path

from engine import hub
from realtime.server.audio import OpusUnavailable
from realtime.server.audio.opus import load_opuslib
from realtime.server.config import ConfigError, ServerConfig
from realtime.server.served_models import read_checkpoints


class Problem(Exception):
    """A check failed; the message says what to do."""


def run_checks(config: ServerConfig) -> int:
    """Run every check, print one line each, return 0 when all passed."""
    checks: dict[str, Callable[[ServerConfig], str]] = {
        "libopus": _check_opus,
        "torch": _check_torch,
        "device": _check_device,
        "model": _check_models,
        "codec": _check_codecs,
        "port": _check_port,
    }
    failures = 0
    for name, check in checks.items():
        try:
            print(f"ok    {name}: {check(config)}")
        except (Problem, ConfigError, hub.CheckpointError, OpusUnavailable) as error:
            failures += 1
            print(f"FAIL  {name}: {error}")
    return 1 if failures else 0


def _check_opus(config: ServerConfig) -> str:
    load_opuslib()
    return "found"


def _check_torch(config: ServerConfig) -> str:
    try:
        return str(importlib.import_module("torch").__version__)
    except (ImportError, OSError) as error:
        raise Problem(f"cannot be imported ({error}); run `pip install torch`") from None


def _check_device(config: ServerConfig) -> str:
    _check_torch(config)
    torch = importlib.import_module("torch")
    cuda = torch.cuda.is_available()
    if config.device.startswith("cuda") and not cuda:
        raise Problem(f"--device {config.device}, but torch {torch.__version__} sees no GPU")
    if cuda and config.device != "cpu":
        return str(torch.cuda.get_device_name())
    return f"CPU with {torch.get_num_threads()} threads"


def _check_models(config: ServerConfig) -> str:
    found = []
    for checkpoint in read_checkpoints(config):
        _check_weights(checkpoint.model_dir)
        title, n_vq = checkpoint.speech.capabilities.title, checkpoint.speech.n_vq
        found.append(f"{checkpoint.model_dir} is {title} with {n_vq} codebooks")
    return "; ".join(found)


def _check_codecs(config: ServerConfig) -> str:
    directories = {checkpoint.codec_dir for checkpoint in read_checkpoints(config)} - {None}
    for directory in directories:
        assert directory is not None
        hub.read_json(directory, "config.json")
        _check_weights(directory)
    return ", ".join(map(str, directories)) or "none is needed"


def _check_weights(directory: Path) -> None:
    if not any(directory.glob("*.safetensors")) and not any(directory.glob("*.bin")):
        raise Problem(f"{directory} holds no .safetensors file: the download is not complete")


def _check_port(config: ServerConfig) -> str:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Problem(f"{config.port} is taken; choose another with --port") from None
            raise Problem(f"cannot listen on {config.host}:{config.port}: {error}") from None
    return f"{config.host}:{config.port} is free"
