"""The notebooks as a reader opens them: JupyterLab in a real browser, "Run All Cells", a look."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOTEBOOK_FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(NOTEBOOK_FOLDER.glob("[0-9]*.ipynb"))
MSNB = {"name": "msnb", "display_name": "msnb", "language": "python"}

# All that is judged comes from JupyterLab's models: the page itself draws only what is in sight.
OPENED = """
const done = arguments[arguments.length - 1];
(async () => {
  const app = window.jupyterapp;
  await app.restored;
  let panel = null;
  for (let i = 0; i < 300; i++) {
    panel = app.shell.currentWidget;
    if (panel && panel.context && panel.context.path === arguments[0]) break;
    await new Promise(r => setTimeout(r, 100));
  }
  await panel.context.ready;
  // Without a kernel, "ready" waits for the reader's answer to the dialog.
  await Promise.race([
    panel.sessionContext.ready, new Promise(r => setTimeout(r, arguments[1] * 1000))
  ]);
  const dialog = document.querySelector('.jp-Dialog');
  const session = panel.sessionContext.session;
  return {
    dialog: dialog && dialog.innerText,
    kernel: session && session.kernel && session.kernel.name,
  };
})().then(done, error => done({failed: String(error)}));
"""
RUN_ALL = """
window.msnbRan = null;
(async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await window.jupyterapp.commands.execute('notebook:run-all-cells');
  return Array.from(panel.content.model.cells).map(cell => cell.toJSON());
})().then(done => { window.msnbRan = done; }, error => {
  window.msnbRan = {failed: String(error)};
});
"""
SHOW_CELL = """
const done = arguments[arguments.length - 1];
(async () => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = arguments[0];
  await notebook.scrollToItem(arguments[0], 'start');
  await new Promise(r => setTimeout(r, 500));
  const node = notebook.widgets[arguments[0]].node;
  const image = node.querySelector('.jp-OutputArea-output img');
  if (!image) return 0;
  image.scrollIntoView({block: 'center'});
  await new Promise(r => setTimeout(r, 500));
  return image.naturalWidth;
})().then(done, error => done({failed: String(error)}));
"""


SHOWN = """
const done = arguments[arguments.length - 1];
(async () => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  await notebook.scrollToItem(arguments[0], 'end');
  await new Promise(r => setTimeout(r, 500));
  const outputs = notebook.widgets[arguments[0]].node.querySelectorAll('.jp-OutputArea-output');
  outputs[outputs.length - 1].scrollIntoView({block: 'end'});
  await new Promise(r => setTimeout(r, 500));
  return Array.from(outputs).map(output => {
    const box = output.getBoundingClientRect();
    const seen = box.width > 0 && box.bottom > 0 && box.top < window.innerHeight;
    return seen ? output.innerText : '';
  });
})().then(done, error => done({failed: String(error)}));
"""


def missing_browser() -> str:
    """Which of Debian's two packages is not there; empty where both are."""
    gone = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(gone)} not on PATH: apt install chromium chromium-driver" if gone else ""


def skip_or_fail(reason: str, ci: bool) -> None:
    """A skip on a reader's machine; where CI promised a browser, a failure."""
    if ci:
        pytest.fail(f"CI has to have a browser: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """JupyterLab with a token on a free port of the loopback, and no settings but these."""
    if reason := missing_browser():
        skip_or_fail(reason, os.environ.get("CI", "") not in ("", "false"))
    home = tmp_path_factory.mktemp("lab")
    root = home / "reader 读者"
    news = home / "settings" / "@jupyterlab" / "apputils-extension"
    news.mkdir(parents=True)
    # What the notebooks read lies beside them; they themselves come one by one, without outputs.
    shutil.copytree(NOTEBOOK_FOLDER, root, ignore=shutil.ignore_patterns("*.ipynb", ".*"))
    (news / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    ours = ("JUPYTER", "GLOG_")  # the reader has neither
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env.update(
        JUPYTER_CONFIG_DIR=str(home / "config"),
        JUPYTER_DATA_DIR=str(home / "data"),
        JUPYTER_RUNTIME_DIR=str(home / "runtime"),
        JUPYTERLAB_SETTINGS_DIR=str(home / "settings"),
        JUPYTERLAB_WORKSPACES_DIR=str(home / "workspaces"),
        IPYTHONDIR=str(home / "ipython"),
    )
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--expose-app-in-browser"]
    command += ["--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--ServerApp.root_dir={root}"]
    command += ["--allow-root"] * (os.getuid() == 0)
    log = home / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 120
        while not (found := [*(home / "runtime").glob("jpserver-*.json")]):
            assert server.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.2)
        info = json.loads(found[0].read_text())
        yield {"url": info["url"], "token": info["token"], "root": root}
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@pytest.fixture(scope="module")
def browser(lab: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    profile = tmp_path_factory.mktemp("chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1400,1100",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(600)
    yield driver
    driver.quit()


@pytest.fixture
def open_notebook(browser: Any, lab: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Write a notebook without outputs into JupyterLab's folder and open it there."""

    def opened(name: str, notebook: Any, wait: float = 60) -> dict[str, Any]:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, lab["root"] / name)
        browser.get(f"{lab['url']}lab/tree/{name}?token={lab['token']}&reset")
        deadline = time.monotonic() + 60
        while not browser.execute_script("return Boolean(window.jupyterapp)"):
            assert time.monotonic() < deadline, "JupyterLab's page did not load"
            time.sleep(0.2)
        return answer(browser.execute_async_script(OPENED, name, wait))

    return opened


def answer(value: Any) -> Any:
    assert not (isinstance(value, dict) and "failed" in value), value
    return value


def run_all(browser: Any) -> Any:
    """The notebook's cells after "Run All Cells"; asked for, since one long wait would be cut."""
    browser.execute_script(RUN_ALL)
    deadline = time.monotonic() + 600
    while (ran := browser.execute_script("return window.msnbRan")) is None:
        assert time.monotonic() < deadline, "the notebook did not end within ten minutes"
        time.sleep(0.3)
    return answer(ran)


def images(cell: dict[str, Any]) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell.get("outputs", []))


def faults(cells: list[dict[str, Any]]) -> list[str]:
    """What a reader would stumble over after "Run All Cells"; no fault, no entry."""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    found = []
    for number, cell in enumerate(code, 1):
        if cell["execution_count"] != number:
            found.append(f"code cell {number} has execution count {cell['execution_count']}")
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                found.append(f"code cell {number}: {output['ename']}: {output['evalue']}")
            if output.get("name") == "stderr":
                found.append(f"code cell {number} writes to stderr: {output['text']}")
    if not any(map(images, code)):
        found.append("no figure")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_run_all(
    path: Path,
    open_notebook: Callable[..., dict[str, Any]],
    browser: Any,
    lab: dict[str, Any],
    tmp_path: Path,
) -> None:
    before = set(lab["root"].iterdir())
    notebook = nbformat.read(path, as_version=4)
    assert open_notebook(path.name, notebook) == {"dialog": None, "kernel": "msnb"}
    cells = run_all(browser)
    assert faults(cells) == []
    for index, cell in enumerate(cells):
        if images(cell):
            width = answer(browser.execute_async_script(SHOW_CELL, index))
            shot = tmp_path / f"{path.stem}-{index:02d}.png"
            browser.save_screenshot(str(shot))
            assert width > 100, f"the figure of cell {index} is not on the page, see {shot}"
    left = set(lab["root"].iterdir()) - before
    assert left <= {lab["root"] / path.name, lab["root"] / ".ipynb_checkpoints"}


def test_an_error_and_a_missing_figure_are_found(
    open_notebook: Callable[..., dict[str, Any]], browser: Any
) -> None:
    cells = [
        new_code_cell("print('fine')"),
        new_code_cell("1 / 0"),
        new_code_cell("print('never')"),
    ]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": MSNB})
    assert open_notebook("broken.ipynb", notebook)["kernel"] == "msnb"
    assert faults(run_all(browser)) == [
        "code cell 2: ZeroDivisionError: division by zero",
        "code cell 3 has execution count None",
        "no figure",
    ]


def test_a_failing_cell_shows_its_hint(
    open_notebook: Callable[..., dict[str, Any]], browser: Any, tmp_path: Path
) -> None:
    way_in = "facts.gather(probe=False)['way_in']['through']"
    cells = [
        new_code_cell(f"from msnb.environment import facts\n\nprint({way_in})"),
        new_code_cell("import msnb\n\ncontext = msnb.setup()"),
        new_code_cell("import mindspore as ms\n\nms.set_device('Ascend')"),
    ]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": MSNB})
    assert open_notebook("hint.ipynb", notebook) == {"dialog": None, "kernel": "msnb"}
    ran = run_all(browser)
    assert ran[0]["outputs"][0]["text"] == "JupyterLab\n"
    if not ran[2]["outputs"]:
        pytest.skip("this machine has an Ascend device")
    error, *after = [o for o in ran[2]["outputs"] if o["output_type"] != "stream"]
    assert error["output_type"] == "error"
    assert len(after) == 1
    shown = answer(browser.execute_async_script(SHOWN, 2))
    browser.save_screenshot(str(tmp_path / "hint.png"))
    assert shown[-1].startswith("hint: "), shown
    assert "msnb doctor --device-target Ascend" in shown[-1], shown


def test_a_figure_is_seen(
    open_notebook: Callable[..., dict[str, Any]], browser: Any, tmp_path: Path
) -> None:
    source = "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 3, 2]);"
    notebook = new_notebook(cells=[new_code_cell(source)], metadata={"kernelspec": MSNB})
    assert open_notebook("figure.ipynb", notebook) == {"dialog": None, "kernel": "msnb"}
    assert faults(run_all(browser)) == []
    assert answer(browser.execute_async_script(SHOW_CELL, 0)) > 100
    browser.save_screenshot(str(tmp_path / "figure.png"))


def test_a_kernel_that_is_not_there_asks_the_reader(
    open_notebook: Callable[..., dict[str, Any]],
) -> None:
    spec = {**MSNB, "name": "no-such-kernel", "display_name": "no such kernel"}
    notebook = new_notebook(cells=[new_code_cell("1")], metadata={"kernelspec": spec})
    found = open_notebook("kernel.ipynb", notebook, wait=5)
    assert "Select Kernel" in found["dialog"]
    assert found["kernel"] is None


def test_nothing_without_the_token(lab: dict[str, Any]) -> None:
    assert lab["token"]
    assert lab["url"].startswith(("http://127.0.0.1:", "http://localhost:"))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{lab['url']}api/contents", timeout=30)
    assert refused.value.code == 403


def test_a_missing_browser_is_a_skip_here_and_a_failure_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = missing_browser()
    assert reason.startswith("chromium and chromedriver not on PATH: apt install")
    with pytest.raises(pytest.skip.Exception, match="apt install chromium"):
        skip_or_fail(reason, ci=False)
    with pytest.raises(pytest.fail.Exception, match="CI has to have a browser"):
        skip_or_fail(reason, ci=True)
