"""Whole runs on the tiny checkpoint: what they leave, and that a stop loses nothing."""

import contextlib
import hashlib
import io
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import torch
from safetensors.numpy import load_file

from engine.checkpoint import tensor_names
from engine.models.realtime import load_realtime
from engine.train import checkpoint
from engine.train.finetune.__main__ import main
from engine.train.finetune.learner import Learner
from engine.train.journal import Journal
from realtime.server.voice import CodecKey, Voice
from realtime.server.voice_files import read_builtin_voices
from tests.engine.train.finetune.recordings import CODEC, MODEL, TEXT, good_clips, write_manifest

SETTINGS = ("--epochs", "3", "--rate", "2e-3", "--rows", "512", "--dtype", "float32")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "broken.wav").write_bytes(b"RIFF, but not really")
    lines = [{"audio": "broken.wav", "text": TEXT}, *good_clips(folder, 8, speaker="nova")]
    return write_manifest(folder, lines)


def words_of(data, out, *more, model=MODEL):
    fixed = ("--model", model, "--codec", CODEC, "--data", data, "--out", out, "--threads", "1")
    return [str(word) for word in (*fixed, *SETTINGS, *more)]


@pytest.fixture
def finetune(data, tmp_path):
    """Run with `SETTINGS` and more; returns the exit status."""

    def finetune(*more, out=tmp_path / "out", model=MODEL):
        return main(words_of(data, out, *more, model=model))

    return finetune


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """The folder of a run that is over; `printed.txt` in it is what was printed."""
    before, out = digests(data.parent), tmp_path_factory.mktemp("finished") / "out"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(words_of(data, out)) == 0
    assert digests(data.parent) == before, "a recording was changed"
    (out / "printed.txt").write_text(printed.getvalue())
    return out


def weights(directory):
    return load_realtime(directory).state_dict()


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a.keys() | b.keys())


def digests(folder):
    return {p: hashlib.sha256(p.read_bytes()).digest() for p in sorted(folder.iterdir())}


def test_a_run_leaves_a_better_checkpoint_and_its_figures(finished):
    assert "broken.wav: left out: cannot be read" in (finished / "printed.txt").read_text()
    result = json.loads((finished / "result.json").read_text())
    assert result["validation_loss"] < result["validation_loss_at_start"] - 0.02
    assert not same(weights(finished / "model"), weights(MODEL))
    assert tensor_names(finished / "model") == tensor_names(MODEL)
    figures = [json.loads(line) for line in (finished / "figures.jsonl").read_text().splitlines()]
    assert sum("validation" in line for line in figures) == 3
    assert json.loads((finished / "check.json").read_text())["unusable"][0]["line"] == 1


def test_the_voice_it_writes_is_one_that_the_server_reads(finished):
    [voice] = read_builtin_voices(finished / "voices", CodecKey("", 16))
    assert isinstance(voice, Voice)
    assert (voice.name, voice.ref_text) == ("nova", TEXT)
    sound, rate_hz = soundfile.read(finished / "voices" / "nova.wav")
    assert rate_hz == 1200
    assert len(voice.codes) == -(-len(sound) // 96)
    kept = [np.load(path) for path in (finished / "codes").glob("*.npy")]
    assert any(np.array_equal(voice.codes, codes) for codes in kept)


class Killed(BaseException):
    """Nothing catches it, like a kill."""


def ends_after(monkeypatch, updates, error):
    """Raise `error` instead of one more update."""
    left, update = updates, Learner.update

    def update_or_end(self, batches, share):
        nonlocal left
        left -= 1
        if left < 0:
            monkeypatch.setattr(Learner, "update", update)
            raise error
        return update(self, batches, share)

    monkeypatch.setattr(Learner, "update", update_or_end)


@pytest.mark.slow
@pytest.mark.parametrize("updates", [1, 3, 7])
def test_a_killed_run_goes_on_to_the_same_result(
    finetune, finished, tmp_path, monkeypatch, updates
):
    monkeypatch.setattr(Journal, "save_due", lambda self: True)
    ends_after(monkeypatch, updates, Killed)
    with pytest.raises(Killed):
        finetune()
    assert finetune() == 0
    assert same(weights(tmp_path / "out" / "model"), weights(finished / "model"))


@pytest.mark.slow
def test_a_run_stopped_by_the_user_goes_on_to_the_same_result(
    finetune, finished, tmp_path, monkeypatch
):
    ends_after(monkeypatch, 4, KeyboardInterrupt)
    assert finetune() == 130
    ends_after(monkeypatch, 3 * 3, AssertionError("it began anew"))
    assert finetune() == 0
    assert same(weights(tmp_path / "out" / "model"), weights(finished / "model"))


def test_a_finished_run_is_not_trained_again(finetune, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished, tmp_path / "out")
    monkeypatch.setattr(Learner, "update", None)
    assert finetune() == 0
    assert same(weights(out / "model"), weights(finished / "model"))


def test_a_folder_with_another_run_is_refused(finetune, finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "out")
    assert finetune("--seed", "5") == 1
    assert "a run with other settings or data" in capsys.readouterr().err


def test_the_checkpoint_to_start_from_is_never_overwritten(finetune, tmp_path, capsys):
    shutil.copytree(MODEL, tmp_path / "out" / "model")
    assert finetune(model=tmp_path / "out" / "model") == 1
    assert "name another --out" in capsys.readouterr().err
    assert same(weights(tmp_path / "out/model"), weights(MODEL))


def test_it_stops_when_validation_gets_worse_and_keeps_the_best(finetune, tmp_path, monkeypatch):
    losses, weights_at = iter([5.0, 4.0, 4.5, 4.6]), []

    def loss(self, batches):
        weights_at.append({n: p.detach().clone() for n, p in self.model.named_parameters()})
        return next(losses)

    monkeypatch.setattr(Learner, "loss", loss)
    monkeypatch.setattr("engine.train.finetune.__main__.write_voices", lambda *_: [])
    assert finetune("--epochs", "50", "--patience", "2") == 0
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert (result["validation_loss"], result["epochs"]) == (4.0, 3)
    best = {name: weight.bfloat16().float() for name, weight in weights_at[1].items()}
    assert same(weights(tmp_path / "out/model"), best)


def test_a_run_that_makes_nothing_better_says_so(finetune, tmp_path, capsys):
    assert finetune("--rate", "1e-30") == 1
    assert "nothing was better" in capsys.readouterr().err
    assert not (tmp_path / "out" / "model").exists()


def test_a_full_disk_leaves_the_best_so_far(finetune, tmp_path, monkeypatch, capsys):
    saved = []
    save_file = checkpoint.save_file

    def fills_up(state, path, metadata):
        if saved:
            path.write_bytes(b"half of it")
            raise OSError(28, "No space left on device")
        save_file(state, path, metadata=metadata)
        saved.append({name: tensor.float() for name, tensor in state.items()})

    monkeypatch.setattr(checkpoint, "save_file", fills_up)
    assert finetune() == 1
    assert "No space left on device; what was saved last is kept" in capsys.readouterr().err
    kept = weights(tmp_path / "out/model")
    assert same(kept, {name: saved[0][name] for name in kept})


def test_check_only_trains_nothing(finetune, tmp_path, capsys):
    assert finetune("--check-only", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["usable"]) == 8
    assert not (tmp_path / "out").exists()


def test_too_few_clips_are_not_trained_on(tmp_path, capsys):
    data = write_manifest(tmp_path, good_clips(tmp_path, 2))
    options = ("--model", MODEL, "--codec", CODEC, "--data", data, "--out", tmp_path / "out")
    assert main([str(word) for word in options]) == 1
    assert "at least 5 usable clips are needed" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_adapters_without_peft_are_refused_with_what_to_do(finetune, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "peft", None)
    assert finetune("--lora", "4") == 1
    assert "pip install 'moss-realtime[train]'" in capsys.readouterr().err


def test_gradient_checkpointing_and_accumulation_run(finetune, tmp_path):
    assert finetune("--gradient-checkpointing", "--rows", "256", "--accumulate", "3") == 0
    assert load_file(tmp_path / "out/voices/references.safetensors")["nova"].shape[1] == 16


@pytest.mark.slow
def test_the_command_line_explains_it():
    words = [sys.executable, "-m", "realtime.server.cli", "finetune", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("usage: moss-realtime finetune")
    assert '{"audio": "a.wav"' in shown
    main_help = subprocess.run([*words[:3], "--help"], capture_output=True, text=True, check=True)
    assert "finetune" in main_help.stdout
