"""Find a checkpoint: a directory on disk, or an id on the Hugging Face hub. Loads no torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_VOICE = Path(__file__).parent / "assets" / "voice"
DEFAULT_MODEL_DIR = _VOICE / "model"
DEFAULT_CODEC_DIR = _VOICE / "codec"
DEFAULT_VOICES_DIR = _VOICE / "voices"

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
# Data only: whatever Python a repository carries is never fetched, let alone run.
_WANTED_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
_OLDER_WEIGHTS = ("pytorch_model*.bin",)  # where there are no safetensors


class CheckpointError(ValueError):
    """A checkpoint that cannot be found or used; the message is for the person who named it."""


def resolve(name: str) -> Path:
    """Return the local directory of a checkpoint.

    `name` is an existing directory, or a hub id such as `owner/model`, which is fetched (or found
    in the hub's cache). Raises `CheckpointError`.
    """
    path = Path(name).expanduser()
    if name and path.is_dir():
        return path
    if path.is_file():
        raise CheckpointError(f"{name!r} is a file: give the directory that holds config.json")
    if not _HUB_ID.fullmatch(name):
        raise CheckpointError(f"no directory {name!r}, and it is not a hub id such as owner/model")
    return _fetch(name)


def read_json(directory: str | Path, name: str) -> dict[str, Any]:
    """Read one JSON object of a checkpoint, for example `config.json`.

    Raises `CheckpointError` when the directory or file is absent or holds something else.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a directory")
    path = directory / name
    if not path.is_file():
        raise CheckpointError(f"{directory} has no {name}: is it a checkpoint?")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds {type(value).__name__}, expected an object")
    return value


def _fetch(hub_id: str) -> Path:
    try:
        import huggingface_hub
    except ImportError as error:
        raise CheckpointError(
            f"no directory {hub_id!r}; to fetch it from the hub, install huggingface-hub"
        ) from error
    try:
        found = Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=list(_WANTED_FILES)))
        if not any(found.glob("*.safetensors")):
            huggingface_hub.snapshot_download(hub_id, allow_patterns=list(_OLDER_WEIGHTS))
        return found
    except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
        raise CheckpointError(
            f"no directory {hub_id!r}, and fetching it from the hub failed: {error}"
        ) from error
