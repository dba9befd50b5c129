"""A real Chromium for the tests marked `browser`; a run without one says so and fails.

The browser is the executable named by the environment variable `CHROMIUM`, else one on the path,
else one that Playwright has installed.
"""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

WEB_DIR = Path(__file__).parents[2] / "web"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
)
NOT_RUN_STATUS = 2
_not_run = pytest.StashKey[str]()


@functools.cache
def find_chromium() -> str | None:
    """Path of a Chromium, if this machine has one and Playwright to drive it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if "CHROMIUM" in os.environ:
        return shutil.which(os.environ["CHROMIUM"])
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    with sync_playwright() as playwright:
        bundled = playwright.chromium.executable_path
    return bundled if os.path.exists(bundled) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the browser tests out when there is no browser, and remember that."""
    wanted = [item for item in items if item.get_closest_marker("browser")]
    if wanted and find_chromium() is None:
        config.stash[_not_run] = f"{len(wanted)} tests need Chromium and Playwright"
        config.hook.pytest_deselected(items=wanted)
        items[:] = [item for item in items if item not in wanted]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turn success into failure when the browser tests did not run."""
    fine = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if _not_run in session.config.stash and exitstatus in fine:
        session.exitstatus = NOT_RUN_STATUS


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say it in the last lines of the run."""
    if _not_run in config.stash:
        print(f"{config.stash[_not_run]}; `make test` installs it where it may.\nNOT RUN: browser")


class _StaticHandler(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

    def do_GET(self) -> None:
        if self.path in ("/blank", "/favicon.ico"):
            self.send_response(204 if self.path == "/favicon.ico" else 200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
        else:
            super().do_GET()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", "default-src 'self'")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def static_url() -> Iterator[str]:
    """`web/` as plain files and an empty page `blank`, without a speech server behind them."""
    handler = functools.partial(_StaticHandler, directory=str(WEB_DIR))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="static-files")
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a file.

    While Playwright runs, an event loop does: asynchronous tests of other files must come after it.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A fresh browser profile."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture(scope="module")
def module_page(browser: Browser, static_url: str) -> Iterator[Page]:
    """An empty page beside the modules of `web/`, for calling them."""
    page = browser.new_page()
    page.goto(f"{static_url}blank")
    yield page
    page.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that must not throw, log an error, or break its content security policy."""
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    yield page
    assert complaints == []
