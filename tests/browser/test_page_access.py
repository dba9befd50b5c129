"""The page on a server with keys: it asks for one, trades it for a token, and keeps neither."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

    from tests.running_server import RunningServer

pytestmark = pytest.mark.browser

KEY = "sk-0123456789abcdef"


@pytest.fixture
def guarded(run_server: Callable[..., RunningServer]) -> RunningServer:
    return run_server(api_keys=(f"app:{KEY}",))


@pytest.fixture
def stranger(context: BrowserContext) -> Iterator[Page]:
    """A page that must not throw; of errors it may log only that the server refused it."""
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    yield page
    assert complaints, "the browser itself says that it was refused"
    assert all("401" in text or "HTTP Authentication failed" in text for text in complaints)


def addresses(page: Page) -> list[str]:
    """Every address the page asks for, from now on."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    return asked


def kept(page: Page) -> str:
    """Whatever outlives the page: storage, cookies, the address."""
    stored: Any = page.evaluate(
        "[document.cookie, location.href, history.state, {...localStorage}, {...sessionStorage}]"
    )
    return json.dumps(stored)


def test_a_key_is_asked_for_and_leaves_no_trace(stranger: Page, guarded: RunningServer) -> None:
    page = stranger
    asked = addresses(page)
    page.goto(guarded.base_url)
    page.wait_for_selector("#connection[data-state=locked]")
    page.keyboard.type("sk-not-the-right-key")  # the field has the focus
    page.keyboard.press("Enter")
    page.wait_for_selector("#access-problem:has-text('does not know this key')")
    page.keyboard.type(KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#connection[data-state=open]")
    page.wait_for_selector("#voice option:text('heart')", state="attached")
    assert page.is_hidden("#access")
    page.keyboard.type("Hello.")
    page.keyboard.press("Enter")
    page.wait_for_selector(".item.assistant:has-text('Hello.')")
    assert len(asked) > 5
    assert not any("sk-" in address or "ct1." in address for address in asked)
    assert "sk-" not in kept(page)
    assert "ct1." not in kept(page)
    assert page.input_value("#credential") == ""
    page.reload()
    page.wait_for_selector("#connection[data-state=locked]")


def test_a_link_with_a_token_opens_and_the_token_leaves_the_address(
    page: Page, guarded: RunningServer
) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    made = httpx.post(f"{guarded.base_url}/v1/client_tokens", headers=headers, json={})
    token = made.json()["token"]
    page.goto(f"{guarded.base_url}/#token={token}")
    page.wait_for_selector("#connection[data-state=open]")
    assert token not in kept(page)
    page.go_back()
    page.go_forward()
    assert "ct1." not in page.url
