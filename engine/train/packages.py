"""Which of the packages that training needs are missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

PACKAGES = (
    *("faster_whisper", "hibari", "jiwer", "matplotlib", "onnx", "onnxruntime", "resemblyzer"),
    "wordfreq",
)


class MissingPackages(Exception):
    """Some packages of the extra `train` are not installed."""


def require_packages(names: Sequence[str] = PACKAGES) -> None:
    """Raise `MissingPackages`, which says how to get them, unless all of `names` are there."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackages(
            f"{', '.join(missing)} missing: run `deploy/setup.sh train`, "
            "which installs what training and evaluation need"
        )
