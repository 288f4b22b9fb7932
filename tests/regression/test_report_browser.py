"""report.html in a real browser: it sorts, filters, fits a phone, and runs nothing but its own."""

from __future__ import annotations

import base64
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msnb.regression import page
from msnb.regression.results import Judged, NotebookResult, Results
from msnb.report import Check, Report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PLANTED = (
    "</pre></script><script>window.planted = 1</script><img src=x onerror='window.planted = 2'>"
    "<svg onload='window.planted = 3'></svg><a href='javascript:window.planted = 4'>x</a>"
    "{{ 7 * 7 }}"
)
VISIBLE = """
const seen = e => e.checkVisibility({contentVisibilityAuto: true});
return [...document.querySelectorAll(arguments[0])].filter(seen).map(e => e.innerText.trim());
"""


def png(width: int, height: int) -> str:
    """A grey picture, as base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    rows = (b"\0" + b"\x80" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    image = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + image).decode()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    gone = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if gone:
        reason = f"{' and '.join(gone)} not on PATH: apt install chromium chromium-driver"
        if os.environ.get("CI", "") not in ("", "false"):
            pytest.fail(f"CI has to have a browser: {reason}")
        pytest.skip(reason)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"),
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Open the page of a run at a width, light or dark; what the console said comes too."""

    def at(results: Results, width: int = 1200, scheme: str = "light") -> Any:
        path = page.write(results, tmp_path)
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.get_log("browser")
        browser.get(path.as_uri())
        return browser

    return at


def run(tmp_path: Path, emitted: str = "as expected") -> Results:
    """A failing, an interrupted and two passing notebooks; ``emitted`` stands wherever it can."""
    import nbformat

    cell = nbformat.v4.new_code_cell(
        emitted,
        outputs=[
            nbformat.v4.new_output("stream", text=emitted),
            nbformat.v4.new_output("display_data", data={"text/html": emitted}),
            nbformat.v4.new_output("display_data", data={"image/png": png(900, 500)}),
            nbformat.v4.new_output("display_data", data={"image/png": emitted}),
        ],
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "02_bad.ipynb")
    bad = Report(
        emitted,
        [
            Check(emitted, "failed", emitted, emitted, emitted, emitted, {emitted: 0.3}),
            Check("long", "ok", "word" * 60, metrics={"max_abs": 1e-7, "limit": 1e-6}),
        ],
    )
    good = Report("all", [Check("device", "ok", found="CPU")])
    notebooks = [
        NotebookResult(
            *("01_first", "notebooks/01_first.ipynb", {"device_target": "CPU"}, "ok", "3 cells"),
            required=[Judged(1, good.to_json())],
            seconds=9.5,
        ),
        NotebookResult(
            *("02_bad", emitted, {emitted: emitted}, "failed", emitted, emitted),
            cell={"number": 1, "id": emitted, "line": emitted},
            error={"name": "E", "message": emitted, "traceback": f"Cell In[1]\n{emitted}"},
            required=[Judged(1, bad.to_json())],
            executed="02_bad.ipynb",
            seconds=80.0,
        ),
        NotebookResult("03_waits", "03.ipynb", {}, "error", "interrupted", seconds=700.0),
        NotebookResult("04_last", "04.ipynb", {}, "ok", "it finds a needle", seconds=10.0),
    ]
    environment = {"platform": emitted, "revision": "", "dirty": None, "versions": {}, "facts": {}}
    return Results("CPU", environment, "2026-11-29T10:00:00+00:00", notebooks, False, 99.0)


def rows(browser: Any) -> list[str]:
    return browser.execute_script(VISIBLE, "#notebooks tbody td:nth-child(2)")


def test_it_sorts_and_filters(opened: Callable[..., Any], tmp_path: Path) -> None:
    browser = opened(run(tmp_path))
    assert rows(browser) == ["02_bad", "03_waits", "01_first", "04_last"]

    def click(selector: str) -> None:
        browser.find_element("css selector", selector).click()

    click("th:nth-child(5) button")
    assert rows(browser) == ["01_first", "04_last", "02_bad", "03_waits"]  # by number, not by text
    click("th:nth-child(5) button")
    assert rows(browser) == ["03_waits", "02_bad", "04_last", "01_first"]
    click("th:nth-child(2) button")
    assert rows(browser) == ["01_first", "02_bad", "03_waits", "04_last"]
    click("th:nth-child(1) button")
    assert rows(browser) == ["02_bad", "03_waits", "01_first", "04_last"]

    wish = browser.find_element("id", "wish")
    wish.send_keys("NEEDLE")
    assert rows(browser) == ["04_last"]
    assert browser.execute_script(VISIBLE, "article h2") == ["04_last ok"]
    wish.send_keys(" nowhere")
    assert browser.execute_script(VISIBLE, "#none") == ["No notebook matches the filter."]
    wish.clear()
    wish.send_keys(" ")
    click("#verdicts input[value=ok]")
    assert rows(browser) == ["02_bad", "03_waits"]

    click("#verdicts input[value=ok]")
    assert len(browser.execute_script(VISIBLE, "article .exhibit")) == 3  # the passing are folded
    click("a[href='#notebook-3']")
    browser.execute_async_script("setTimeout(arguments[0], 100)")
    assert len(browser.execute_script(VISIBLE, "article .exhibit")) == 5
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def test_a_planted_script_does_not_run(opened: Callable[..., Any], tmp_path: Path) -> None:
    results = run(tmp_path, PLANTED)
    results.notes = [PLANTED]
    results.notebooks[1].notebook = PLANTED
    browser = opened(results)
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    assert browser.execute_script("return window.planted") is None
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.images.length") == 1
    assert "{{ 7 * 7 }}" in browser.find_element("tag name", "body").text
    # Even if something did slip through, the policy of the page would not let it run.
    text = (tmp_path / page.FILE).read_text()
    (tmp_path / page.FILE).write_text(text.replace("</main>", f"{PLANTED}</main>"))
    browser.refresh()
    browser.execute_async_script("setTimeout(arguments[0], 300)")
    assert browser.execute_script("return document.scripts.length") == 2
    assert browser.execute_script("return window.planted") is None


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(
    opened: Callable[..., Any], tmp_path: Path, width: int, scheme: str
) -> None:
    browser = opened(run(tmp_path), width, scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    figure = "const box = document.images[0].getBoundingClientRect(); return [box.left, box.right]"
    left, right = browser.execute_script(figure)
    assert 0 <= left < right <= width
    table = "return document.querySelector('.checks').getBoundingClientRect().right"
    beside = left >= browser.execute_script(table)
    assert beside == (width == 1200)  # on a phone the figure stands below its verdict
    for selector in ("body", ".soft", ".sign.failed", ".sign.error", ".sign.ok", "a", "pre"):
        assert contrast(browser, selector) >= 4.5, selector  # WCAG 2.2, 1.4.3, level AA
    small = "return parseFloat(getComputedStyle(document.querySelector('pre')).fontSize)"
    assert browser.execute_script(small) >= 12


def contrast(browser: Any, selector: str) -> float:
    """The contrast of text against what lies behind it (WCAG 2.2, contrast ratio)."""
    text, behind = browser.execute_script(
        """
        let element = document.querySelector(arguments[0]);
        const colour = getComputedStyle(element).color;
        while (element && getComputedStyle(element).backgroundColor === 'rgba(0, 0, 0, 0)')
          element = element.parentElement;
        return [colour, getComputedStyle(element || document.body).backgroundColor];
        """,
        selector,
    )

    def luminance(colour: str) -> float:
        parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted(map(luminance, (text, behind)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_light_and_dark_differ(opened: Callable[..., Any], tmp_path: Path) -> None:
    seen = []
    for scheme in ("light", "dark"):
        browser = opened(run(tmp_path), 1200, scheme)
        colour = "return getComputedStyle(document.body).backgroundColor"
        seen.append(browser.execute_script(colour))
    assert seen == ["rgb(246, 247, 249)", "rgb(17, 21, 27)"]


def test_without_scripts_everything_is_there(tmp_path: Path) -> None:
    """What sorts and filters appears only once it works; nothing waits for a script to show."""
    html = page.render(run(tmp_path), tmp_path)
    assert '<div id="controls" hidden>' in html
    assert html.count(" hidden>") == 2  # the controls, and the sentence that nothing matches
