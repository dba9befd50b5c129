"""Names of checkpoints: directories, hub ids, and errors that say what to do."""

import subprocess
import sys
from fnmatch import fnmatch

import huggingface_hub
import pytest

from engine.hub import (
    DEFAULT_CODEC_DIR,
    DEFAULT_MODEL_DIR,
    DEFAULT_VOICES_DIR,
    CheckpointError,
    resolve,
)


def test_a_directory_is_itself(tmp_path):
    assert resolve(str(tmp_path)) == tmp_path


def test_the_shipped_voice_is_in_place():
    assert (resolve(str(DEFAULT_MODEL_DIR)) / "config.json").is_file()
    assert (resolve(str(DEFAULT_CODEC_DIR)) / "config.json").is_file()
    assert (resolve(str(DEFAULT_VOICES_DIR)) / "references.safetensors").is_file()


@pytest.mark.parametrize("name", ["./absent/model", "/absent/model", "absent", "a/b/c", ""])
def test_a_path_that_is_absent_is_not_taken_for_a_hub_id(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="no directory"):
        resolve(name)


def test_a_file_is_refused(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(CheckpointError, match="is a file"):
        resolve(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize(
    ("weights", "more"),
    [("model-00001-of-00002.safetensors", []), ("pytorch_model.bin", [["pytorch_model*.bin"]])],
)
def test_a_hub_id_is_fetched_as_data_only(tmp_path, monkeypatch, weights, more):
    """Weights that torch has saved only where there are no others."""
    asked = []

    def snapshot_download(hub_id, *, allow_patterns):
        assert hub_id == "someone/some-model.v1"
        asked.append(allow_patterns)
        if any(fnmatch(weights, pattern) for pattern in allow_patterns):
            (tmp_path / weights).touch()
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert resolve("someone/some-model.v1") == tmp_path
    assert asked == [["*.json", "*.safetensors", "*.txt", "*.model"], *more]
    assert (tmp_path / weights).is_file()


def test_a_hub_id_that_cannot_be_fetched_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="'someone/absent', and fetching it from the hub"):
        resolve("someone/absent")


def test_a_hub_id_without_the_hub_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="install huggingface-hub"):
        resolve("someone/absent")


def test_finding_a_checkpoint_loads_no_torch():
    probe = "import sys, engine.hub; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
