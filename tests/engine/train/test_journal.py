"""What a run leaves behind survives a kill at any moment."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from engine.train import journal as journals
from engine.train.files import written_whole
from engine.train.journal import Journal


def killed(program: str, folder: Path) -> int:
    """Run `program` with `folder` in `sys.argv[1]`; returns its status."""
    words = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    path = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    return subprocess.run(words, env=os.environ | {"PYTHONPATH": path}, timeout=60).returncode


def test_a_new_journal_has_no_state_and_then_the_last_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "stage", "stage")
    assert journal.state() is None
    for step in (1, 2):
        journal.save({"step": step, "weights": torch.full((3,), float(step))})
    state = Journal(tmp_path / "deep" / "stage", "stage").state()
    assert state is not None
    assert state["step"] == 2
    assert torch.equal(state["weights"], torch.full((3,), 2.0))


def test_a_kill_in_mid_save_leaves_the_state_before(tmp_path: Path) -> None:
    status = killed(
        """
        import os, signal, sys
        from pathlib import Path
        import torch
        from engine.train import journal

        it = journal.Journal(Path(sys.argv[1]), "stage")
        it.save({"step": 1})

        def half(state, file):
            file.write(b"half of it")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        journal.torch.save = half
        it.save({"step": 2})
        """,
        tmp_path,
    )
    assert status == -9
    assert (tmp_path / "state.partial").read_bytes() == b"half of it"
    journal = Journal(tmp_path, "stage")
    assert journal.state() == {"step": 1}
    journal.save({"step": 3})
    assert journal.state() == {"step": 3}


def test_a_state_is_due_after_three_minutes(tmp_path: Path, monkeypatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(journals.time, "monotonic", lambda: now_s)
    journal = Journal(tmp_path, "stage")
    now_s += 179
    assert not journal.save_due()
    now_s += 2
    assert journal.save_due()
    journal.save({})
    assert not journal.save_due()


def test_progress_tells_rate_and_time_left_of_what_is_left(tmp_path, monkeypatch, caplog) -> None:
    now_s = 0.0
    monkeypatch.setattr(journals.time, "monotonic", lambda: now_s)
    journal = Journal(tmp_path, "codec")
    journal.resume_at(0.5)  # by a run before, so the next quarter in 60 s leaves another 60 s
    with caplog.at_level(logging.INFO):
        now_s = 9.0
        journal.progress(0.6, loss=3.0)
        now_s = 60.0
        journal.progress(0.75, loss=2.0)
        journal.progress(0.76, loss=1.0)
        journal.progress(1.0, loss=0.5)
    assert [record.getMessage() for record in caplog.records] == [
        "codec  75.0 %  1 min left  loss 2",
        "codec 100.0 %  0 min left  loss 0.5",
    ]
    lines = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    assert lines == [
        {"stage": "codec", "share": 0.75, "spent_s": 60.0, "loss": 2.0},
        {"stage": "codec", "share": 1.0, "spent_s": 60.0, "loss": 0.5},
    ]


def test_a_stage_without_figures_has_no_plot(tmp_path: Path) -> None:
    Journal(tmp_path, "stage").plot()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with written_whole(path) as partial:
        partial.write_text("old")

    def fail() -> None:
        with written_whole(path) as partial:
            partial.write_text("ne")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_text() == "old"
    with written_whole(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_in_mid_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    status = killed(
        """
        import os, signal, sys
        from pathlib import Path
        from engine.train.files import written_whole

        with written_whole(Path(sys.argv[1]) / "file") as partial:
            partial.write_text("ne")
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert status == -9
    assert (tmp_path / "file").read_text() == "old"
