"""`deploy/setup.sh`, with a Python, an apt and a sudo that only write down what they were asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "cat", "cut", "dirname", "env", "grep", "mkdir", "cp", "sha256sum")

# Stands in for python3 and for .venv/bin/python alike; `broken` holds parts of calls that fail.
PYTHON = """\
call="$*"
echo "python $call" >>"$LOG"
while read -r part; do [ "${call#*"$part"}" = "$call" ] || exit 1; done <"$BROKEN"
case "$call" in
    -V*) echo "Python 3.11.99" ;;
    *"%d.%d-venv"*) echo python3.11-venv ;;
    "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
"""


class Machine:
    """A checkout on a machine that has only the tools in `bin`."""

    def __init__(self, path: Path) -> None:
        self.bin, self.checkout = path / "bin", path / "checkout"
        self.log, self.broken = path / "log", path / "broken"
        self.bin.mkdir()
        (self.checkout / "deploy").mkdir(parents=True)
        self.broken.touch()
        shutil.copy(ROOT / "deploy" / "setup.sh", self.checkout / "deploy")
        shutil.copy(ROOT / "pyproject.toml", self.checkout)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or f"missing-{tool}")
        self.command("python3", PYTHON)
        self.command("apt-get", 'echo "apt-get $*" >>"$LOG"')
        self.command("sudo", "exit 1")
        self.command("id", "echo 0")

    def command(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!{self.bin}/bash\n{script}\n")
        (self.bin / name).chmod(0o755)

    def setup(self, extra: str) -> tuple[list[str], str]:
        """Run it; return the pip and apt calls it made, and what it said."""
        self.log.write_text("")
        environ = {
            "PATH": str(self.bin),
            "HOME": str(self.checkout),
            "LOG": str(self.log),
            "BROKEN": str(self.broken),
        }
        command = [str(self.checkout / "deploy" / "setup.sh"), extra]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        calls = [line for line in self.log.read_text().splitlines() if " install " in line]
        return calls, done.stderr + f"exit {done.returncode}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_second_run_installs_nothing(machine: Machine) -> None:
    machine.command("chromium", "")
    machine.command("curl", "")
    first, said = machine.setup("dev")
    assert first[-1].endswith("-e .[server,dev]"), said
    assert machine.setup("dev") == ([], "exit 0")
    assert machine.setup("server") == ([], "exit 0")


def test_what_training_needs_is_enough_for_the_tests(machine: Machine) -> None:
    calls, said = machine.setup("train")
    assert any(call.endswith("-e .[server,dev,train]") for call in calls), said
    assert calls[-1].endswith("--no-deps resemblyzer==0.1.4")
    assert machine.setup("train") == machine.setup("server") == ([], "exit 0")
    assert not any(" -m pip " in call for call in machine.setup("dev")[0])


def test_tests_are_not_enough_for_training(machine: Machine) -> None:
    machine.setup("dev")
    calls, said = machine.setup("train")
    assert any(call.endswith("-e .[server,dev,train]") for call in calls), said


def test_a_changed_dependency_is_installed(machine: Machine) -> None:
    machine.setup("server")
    with (machine.checkout / "pyproject.toml").open("a") as file:
        file.write("# another dependency\n")
    calls, _ = machine.setup("server")
    assert calls[-1].endswith("-e .[server]")


def test_the_tests_need_more_than_the_demo(machine: Machine) -> None:
    machine.setup("server")
    calls, _ = machine.setup("dev")
    assert calls[-1].endswith("-e .[server,dev]")


def test_a_failed_installation_is_tried_again(machine: Machine) -> None:
    machine.broken.write_text("-e .[server]\n")
    assert machine.setup("server")[1].endswith("exit 1")
    machine.broken.write_text("")
    assert machine.setup("server")[1].endswith("exit 0")


def test_missing_system_packages_are_installed_once(machine: Machine) -> None:
    machine.broken.write_text("ensurepip\nCDLL\n")
    calls, said = machine.setup("dev")
    missing = "python3.11-venv libopus0 libatomic1 curl chromium"
    assert calls[0].startswith(f"apt-get install -y --no-install-recommends {missing}")
    assert f"setup: installing system packages: {missing}\n" in said


def test_without_rights_the_exact_line_is_printed(machine: Machine) -> None:
    machine.command("id", "echo 1000")
    machine.broken.write_text("CDLL\n")
    calls, said = machine.setup("server")
    assert "run: sudo apt-get install -y --no-install-recommends libopus0\n" in said
    assert not [call for call in calls if call.startswith("apt-get")]
    assert said.endswith("exit 0"), "the demo speaks without Opus"


def test_no_virtual_environment_is_the_end(machine: Machine) -> None:
    machine.command("id", "echo 1000")
    machine.broken.write_text("ensurepip\n")
    _, said = machine.setup("server")
    assert said.endswith("apt-get install -y --no-install-recommends python3.11-venv\nexit 1")


def test_torch_without_a_gpu_is_the_cpu_build(machine: Machine) -> None:
    calls, _ = machine.setup("server")
    assert [("--index-url" in call, call.split()[-1][:7]) for call in calls] == [
        (True, "torch=="),
        (False, ".[serve"),
    ]


def test_torch_comes_from_the_default_index_when_the_cpu_builds_are_out_of_reach(
    machine: Machine,
) -> None:
    machine.broken.write_text("--index-url\n")
    calls, said = machine.setup("server")
    assert "--index-url" in calls[0]
    assert calls[1].endswith(calls[0].split()[-1])
    assert "out of reach" in said
    assert said.endswith("exit 0")


def test_torch_with_a_gpu_is_the_default_build(machine: Machine) -> None:
    machine.command("nvidia-smi", "")
    calls, _ = machine.setup("server")
    assert not any("--index-url" in call for call in calls)


def test_an_old_python_is_refused(machine: Machine) -> None:
    machine.broken.write_text("version_info < \n")
    _, said = machine.setup("server")
    assert "Python 3.11 or later is needed" in said
    assert said.endswith("exit 1")
