"""Over a real sshd on the loopback, as VS Code's Remote - SSH comes in.

Its log names the command that starts its server: ``ssh -T -D PORT HOST bash``, with the script on
standard input (microsoft/vscode-remote-release, issue 10864). So no shell is interactive, and none
is a login shell. The account's own home folder is never looked at: sshd sets another.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import overlay
import pytest
from ascend_machines import put
from test_doctor_fix import SET_ENV

from msnb.report import Report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Debian's and Ubuntu's .bashrc begins so: what follows is not for VS Code's server.
GUARD = "case $- in\n    *i*) ;;\n      *) return;;\nesac\n"


def missing_ssh() -> str:
    """Which program is not there; empty where all are."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    gone = [n for n in ("sshd", "ssh", "ssh-keygen") if shutil.which(n, path=places) is None]
    return f"{' and '.join(gone)} not on PATH: apt install openssh-server" if gone else ""


def skip_or_fail(reason: str, ci: bool) -> None:
    """A skip on a reader's machine; where CI promised an sshd, a failure."""
    if ci:
        pytest.fail(f"CI has to have sshd: {reason}")
    pytest.skip(reason)


@dataclass
class Server:
    """An account reached by ssh: its home, a repository, an environment."""

    folder: Path
    port: int

    @property
    def home(self) -> Path:
        return self.folder / "home 家"

    @property
    def repo(self) -> Path:
        return self.home / "msnb 仓库"

    @property
    def cann(self) -> Path:
        return self.home / "Ascend" / "cann"

    def says(self, script: str, *command: str) -> subprocess.CompletedProcess[str]:
        """What ``ssh -T HOST bash`` answers to ``script`` on its standard input."""
        options = ("IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "BatchMode=yes")
        options += (f'UserKnownHostsFile="{self.folder}/known_hosts"', "ConnectTimeout=20")
        words = ["ssh", "-F", "none", "-T", "-p", str(self.port), "-i", str(self.folder / "key")]
        words += [word for option in options for word in ("-o", option)]
        return subprocess.run(
            [*words, f"{getpass.getuser()}@127.0.0.1", *(command or ("bash",))],
            input=f"cd {shlex.quote(str(self.repo))} || exit 9\n{script}\n",
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    def doctor(self, *arguments: str) -> Report:
        done = self.says(f".venv/bin/msnb doctor --json {' '.join(arguments)}")
        assert done.stdout.startswith("{"), done.stdout + done.stderr
        return Report.from_json(json.loads(done.stdout))


def keys(folder: Path) -> None:
    for name in ("key", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", folder / name]
        subprocess.run(command, check=True, timeout=60)
    (folder / "authorized").write_text((folder / "key.pub").read_text("utf-8"), encoding="utf-8")


def account(server: Server) -> None:
    """A home with a repository and an environment that is fit."""
    server.repo.mkdir(parents=True)
    for part in ("pyproject.toml", ".vscode"):
        source = overlay.REPO / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, server.repo / part)
    python = overlay.build(server.home / "env")
    overlay.script(python, "msnb", "from msnb.cli import main\nmain()")
    (server.repo / ".venv").symlink_to("../env")
    write_small_notebook(server.repo / "notebooks" / "01_small.ipynb")


def write_small_notebook(file: Path) -> None:
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    cells = [
        new_code_cell('device_target: str = "CPU"', metadata={"tags": ["parameters"]}),
        new_code_cell("import msnb\n\ncontext = msnb.setup(device_target)"),
        new_code_cell("import mindspore as ms\n\ntotal = (ms.Tensor([1.0]) + 1).asnumpy()[0]"),
        new_code_cell(
            'msnb.Report("small", [context.check(), msnb.Check("sum", "ok", f"{total}")]).require()'
        ),
    ]
    spec = {"name": "msnb", "display_name": "msnb", "language": "python"}
    file.parent.mkdir()
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": spec}), file)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if reason := missing_ssh():
        skip_or_fail(reason, os.environ.get("CI", "") not in ("", "false"))
    server = Server(tmp_path_factory.mktemp("ssh"), free_port())
    account(server)
    keys(server.folder)
    host_key = " ".join((server.folder / "host_key.pub").read_text("utf-8").split()[:2])
    known = f"[127.0.0.1]:{server.port} {host_key}\n"
    (server.folder / "known_hosts").write_text(known, encoding="utf-8")
    settings = {
        "Port": server.port,
        "ListenAddress": "127.0.0.1",
        "HostKey": f'"{server.folder}/host_key"',
        "AuthorizedKeysFile": f'"{server.folder}/authorized"',
        "PidFile": "none",
        "StrictModes": "no",  # pytest's folder is in one that all may write to
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "UsePAM": "no",
        "SetEnv": f'"HOME={server.home}" "SHELL=/bin/bash"',
    }
    config = server.folder / "sshd_config"
    config.write_text("".join(f"{k} {v}\n" for k, v in settings.items()), encoding="utf-8")
    privileged = Path("/run/sshd")  # sshd does not start as root without it
    made = os.geteuid() == 0 and not privileged.exists()
    if made:
        privileged.mkdir(mode=0o755)
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    program = str(shutil.which("sshd", path=places))
    log = server.folder / "log"
    with log.open("wb") as output:
        sshd = subprocess.Popen(
            [program, "-D", "-e", "-f", config],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while "Server listening" not in (said := log.read_text("utf-8", "replace")):
            assert sshd.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        done = server.says("true")
        assert done.returncode == 0, done.stderr + log.read_text("utf-8", "replace")
        yield server
    finally:
        os.killpg(sshd.pid, signal.SIGTERM)
        try:
            sshd.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(sshd.pid, signal.SIGKILL)
            sshd.wait()
        if made:
            privileged.rmdir()


def kernel(server: Server, code: str, before: str = "") -> str:
    """What a kernel called msnb prints that is started over SSH, as VS Code's server starts it."""
    program = f"""
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="msnb", startup_timeout=60)
def show(message):
    sys.stdout.write(message["content"].get("text", ""))
try:
    reply = client.execute_interactive({code!r}, output_hook=show, timeout=120)
    assert reply["content"]["status"] == "ok", reply
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""
    for _ in range(3):  # jupyter_client chooses ports that another may take before the kernel does
        done = server.says(f"{before}\n.venv/bin/python - <<'END'\n{program}\nEND")
        if "Address already in use" not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_account_is_one_that_no_shell_prepared(server: Server) -> None:
    (server.home / ".bashrc").write_text(f"export SEEN=1\n{GUARD}export BELOW=1\n", "utf-8")
    said = dict(
        line.split("=", 1) for line in server.says("env").stdout.splitlines() if "=" in line
    )
    assert said["HOME"] == str(server.home)
    assert "SSH_CONNECTION" in said
    assert {"SSH_TTY", "BELOW", "VIRTUAL_ENV", "PYTHONPATH"} & set(said) == set()
    # bash reads .bashrc for sshd, up to the guard: Debian's is built so, others need not be
    assert said.get("SEEN", "1") == "1"
    (server.home / ".bashrc").unlink()


def test_doctor_kernel_and_a_notebook(server: Server) -> None:
    unregistered = server.doctor()
    first = next(row for row in unregistered if row.status == "failed")
    assert first.id == "kernel"
    done = server.says(first.remedy)
    assert "kernelspec: wrote" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    fit = server.doctor()
    assert fit.ok, str(fit)
    assert fit["way in"].summary.startswith("a command over SSH, without a terminal")

    code = "import msnb.environment.facts as f; print(f.gather(probe=False)['way_in']['through'])"
    vscode = "export VSCODE_AGENT_FOLDER=~/.vscode-server"
    assert kernel(server, code, before=vscode) == "VS Code over Remote-SSH\n"

    ran = server.says(".venv/bin/msnb run 01 --out 'my runs'")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"msnb run on CPU: ok \(1 ok\)", ran.stdout)
    assert (server.repo / "my runs" / "results.json").is_file()


def test_set_env_only_in_bashrc_is_seen_and_cured(server: Server) -> None:
    script = server.cann / "set_env.sh"
    put(server.cann, "set_env.sh", SET_ENV.replace("/usr/local/Ascend/cann", f"'{server.cann}'"))
    put(server.cann, "compiler/version.info", "Version=9.0.0\nversion_dir=9.0.0\n")
    line = f"source '{script}'"
    (server.home / ".bashrc").write_text(f"{GUARD}{line}\n", "utf-8")
    has = "import os; print(os.environ.get('ASCEND_HOME_PATH'))"

    # a terminal has it, since its shell is interactive; a command over SSH and its kernel have not
    terminal = server.says("", "bash", "-ic", "'echo $ASCEND_HOME_PATH'")
    assert terminal.stdout.splitlines()[-1] == str(server.cann)
    server.says(".venv/bin/python -m msnb.environment --fix")
    assert kernel(server, has) == "None\n"
    before = server.doctor("--device-target", "Ascend")["set_env.sh"]
    assert before.status == "failed"
    assert "though ~/.bashrc sources it: VS Code's server and Jupyter's kernels do not read" in (
        before.summary
    )
    assert before.found == f"~/.bashrc has: {line}"
    assert before.remedy == f"{line} && msnb doctor --device-target Ascend --fix"

    # as it is typed, in a shell with the environment active
    done = server.says(f"source .venv/bin/activate\n{before.remedy}")
    assert f"  + ASCEND_HOME_PATH={server.cann}" in done.stdout, done.stdout + done.stderr
    assert kernel(server, has) == f"{server.cann}\n"
    code = (
        "import msnb\nreport = msnb.doctor('Ascend')\n"
        "print(*(report[row].status for row in ('set_env.sh', 'kernel variables', 'CANN')))"
    )
    assert kernel(server, code) == "ok ok ok\n"
    text = (server.repo / ".env").read_text("utf-8")
    assert f'ASCEND_HOME_PATH="{server.cann}"' in text  # VS Code reads this one


def test_a_key_that_is_not_authorized_is_refused(server: Server, tmp_path: Path) -> None:
    keys(tmp_path)
    stranger = Server(tmp_path, server.port)
    shutil.copy(server.folder / "known_hosts", tmp_path)
    done = stranger.says("true")
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_a_missing_sshd_is_a_skip_here_and_a_failure_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: None if name == "sshd" else name)
    reason = missing_ssh()
    assert reason == "sshd not on PATH: apt install openssh-server"
    with pytest.raises(pytest.skip.Exception, match="apt install openssh-server"):
        skip_or_fail(reason, ci=False)
    with pytest.raises(pytest.fail.Exception, match="CI has to have sshd"):
        skip_or_fail(reason, ci=True)
