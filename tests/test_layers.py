"""Imports go one way (kernels <- engine <- server; protocol <- session, server, sdk)."""

from __future__ import annotations

import ast
import dataclasses
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("kernels", "engine", "realtime", "web", "deploy", "tests")
TORCH_FREE_ENGINE = (
    *("engine.api", "engine.text", "engine.models.realtime_prompt"),
    *("engine.models.local_prompt", "engine.models.nano_prompt", "engine.models.slot_prompt"),
    *("engine.models.variants", "engine.models.capabilities", "engine.models.utterances"),
    *("engine.models.speech_models", "engine.models.realtime_speech"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """What a package may import: modules of ours and of others, each with all below it.

    Free are the packages a module lies in and the standard library; `never` is never.
    """

    ours: tuple[str, ...]
    others: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


LAYERS = {
    "kernels": Layer(ours=("kernels",), others=("numpy", "torch", "triton"), never=("asyncio",)),
    "engine": Layer(
        ours=("engine", "kernels"),
        others=(
            *("huggingface_hub", "msgpack", "numpy", "safetensors", "sentencepiece"),
            *("tokenizers", "torch", "transformers", "wetext"),
        ),
        never=("asyncio", "engine.train"),
    ),
    "engine.train": Layer(
        ours=("engine", "kernels"),
        others=(
            *("ctranslate2", "faster_whisper", "hibari", "jiwer", "matplotlib", "numpy", "onnx"),
            *("onnxruntime", "peft", "resemblyzer", "safetensors", "scipy", "soundfile", "soxr"),
            *("tokenizers", "torch", "wordfreq"),
        ),
        never=("asyncio",),
    ),
    "realtime.protocol": Layer(
        ours=("realtime.protocol",),
        others=("msgpack",),
        never=("asyncio", "socket", "threading"),
    ),
    "realtime.session": Layer(
        ours=("realtime.session", "realtime.protocol", *TORCH_FREE_ENGINE),
        others=("numpy",),
        never=("asyncio", "socket", "threading", "time"),
    ),
    "realtime.sdk": Layer(
        ours=("realtime.sdk", "realtime.protocol"), others=("msgpack", "sounddevice", "websockets")
    ),
    "realtime.bench": Layer(
        ours=("realtime.bench", "realtime.sdk", "realtime.protocol"),
        others=("httpx", "numpy", "websockets"),
    ),
    "realtime.server": Layer(
        ours=(
            *("realtime.server", "realtime.session", "realtime.sdk", "realtime.protocol"),
            *(*TORCH_FREE_ENGINE, "engine.hub", "engine.fake", "engine.host"),
            "engine.config",
        ),
        others=(
            *("httpx", "numpy", "opuslib", "prometheus_client", "pydantic", "pydantic_core"),
            *("safetensors", "soundfile", "soxr", "starlette", "tqdm", "uvicorn", "websockets"),
            "yaml",
        ),
    ),
    "realtime": Layer(ours=()),
    "web": Layer(ours=()),
}


def upward_imports(root: Path) -> list[str]:
    """Return `module:line imports target` for each import that `LAYERS` does not allow."""
    modules = {_module_name(root, path): path for path in _sources(root)}
    return [
        f"{module}:{line} imports {target}"
        for module, path in modules.items()
        for line, target in _imports(module, path, modules)
        if not _within(module, target) and not _allowed(LAYERS[_layer(module)], target)
    ]


def _sources(root: Path) -> Iterator[Path]:
    for package in OURS:
        if package not in ("deploy", "tests"):
            yield from sorted((root / package).rglob("*.py"))


def _module_name(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _layer(module: str) -> str:
    return max((name for name in LAYERS if _within(module, name)), key=len)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _allowed(layer: Layer, target: str) -> bool:
    if any(_within(target, package) for package in layer.never):
        return False
    if target.split(".")[0] in OURS:
        return any(_within(target, package) for package in layer.ours)
    if target.split(".")[0] in sys.stdlib_module_names:
        return True
    return any(_within(target, package) for package in layer.others)


def _imports(module: str, path: Path, modules: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """Yield every import of a file, those inside functions and conditions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, path, node)
            for alias in node.names:
                name = f"{source}.{alias.name}"
                yield node.lineno, name if name in modules else source


def _absolute(module: str, path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def test_imports_go_one_way() -> None:
    assert upward_imports(ROOT) == []


def test_the_walk_sees_every_package() -> None:
    layers = {_layer(_module_name(ROOT, path)) for path in _sources(ROOT)}
    assert layers == set(LAYERS)


@pytest.mark.parametrize(
    ("file", "source", "target"),
    [
        ("kernels/norm.py", "import engine.api", "engine.api"),
        ("engine/row.py", "from realtime.session import session", "realtime.session"),
        ("engine/row.py", "def later():\n    import asyncio", "asyncio"),
        ("engine/text/plain.py", "from ...realtime import sdk", "realtime"),
        ("engine/host.py", "from engine.train import voice", "engine.train"),
        ("realtime/server/cli.py", "import engine.train.voice", "engine.train.voice"),
        ("engine/train/voice.py", "import realtime.sdk", "realtime.sdk"),
        ("realtime/protocol/frames.py", "import numpy as np", "numpy"),
        ("realtime/session/session.py", "from engine import engine", "engine.engine"),
        ("realtime/session/session.py", "import time", "time"),
        (
            "realtime/sdk/client.py",
            "from ..session.history import History",
            "realtime.session.history",
        ),
        ("realtime/sdk/__init__.py", "from ..server import app", "realtime.server"),
        ("realtime/sdk/client.py", "import numpy", "numpy"),
        ("realtime/server/app.py", "if True:\n    import torch", "torch"),
        ("realtime/server/app.py", "from engine.models import realtime", "engine.models"),
        ("realtime/server/app.py", "import tests.conftest", "tests.conftest"),
        ("realtime/server/app.py", "import requests", "requests"),
    ],
)
def test_an_upward_import_is_found(tmp_path: Path, file: str, source: str, target: str) -> None:
    for path in (file, "engine/engine.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / file).write_text(f"import json\n{source}\n")
    (found,) = upward_imports(tmp_path)
    assert found.endswith(f" imports {target}")


def test_allowed_imports_are_let_through(tmp_path: Path) -> None:
    (tmp_path / "realtime" / "server").mkdir(parents=True)
    (tmp_path / "realtime" / "server" / "app.py").write_text(
        "import asyncio\nimport starlette.routing\nfrom engine.api import Open\nfrom . import cli\n"
    )
    assert upward_imports(tmp_path) == []


def loaded_after_importing(*packages: str) -> set[str]:
    """Import every module of `packages` in a fresh interpreter; return all that it then holds."""
    names = [
        name
        for package in packages
        for name in [package, *_modules_below(package)]
        if not name.endswith("__main__")
    ]
    code = "import sys\n" + "".join(f"import {name}\n" for name in names) + "print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def _modules_below(package: str) -> list[str]:
    path = str(ROOT.joinpath(*package.split(".")))
    return [module.name for module in pkgutil.walk_packages([path], package + ".")]


def test_the_server_process_holds_no_torch() -> None:
    loaded = loaded_after_importing("realtime.server", "realtime.session", "engine.text")
    assert "realtime.server.cli" in loaded
    assert loaded.isdisjoint({"torch", "triton", "transformers"})


def test_the_sdk_needs_nothing_but_websockets_and_msgpack() -> None:
    loaded = loaded_after_importing("realtime.sdk", "realtime.protocol")
    assert {"websockets", "msgpack"} <= loaded
    assert loaded.isdisjoint({"numpy", "sounddevice", "torch", "starlette", "engine"})
