"""Headless Chromium through its debugging pipe: no driver, no port, nothing to install beside the browser."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe"),
)


def find_chromium() -> str | None:
    """Return the path of a Chromium: on the search path, or Playwright's."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    found = sorted([*cache.glob("chromium-*/chrome-linux*/chrome"), *cache.glob("chromium_headless_shell-*/*/headless_shell")])
    return str(found[-1]) if found else None


class Page:
    """One page: commands in, answers and events out."""

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read = write, read
        self.events: list[dict[str, Any]] = []
        self.number, self.rest, self.session = 0, b"", ""

    def send(self, method: str, limit: float = 60.0, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; events on the way are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        for answer in self.messages(limit):
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)
        raise TimeoutError(f"{method} had no answer in {limit} s")

    def wait_for(self, event: str, limit: float = 60.0) -> None:
        """Wait until an event has come."""
        if any(seen.get("method") == event for seen in self.events):
            return
        for answer in self.messages(limit):
            self.events.append(answer)
            if answer.get("method") == event:
                return
        raise TimeoutError(f"{event} did not come in {limit} s")

    def messages(self, limit: float) -> Iterator[dict[str, Any]]:
        """Yield messages as they come, until the time is over."""
        os.set_blocking(self.read, False)
        end = time.monotonic() + limit
        while time.monotonic() < end:
            while b"\0" in self.rest:
                message, self.rest = self.rest.split(b"\0", 1)
                yield json.loads(message)
            try:
                piece = os.read(self.read, 1 << 16)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            if not piece:
                raise EOFError("the browser is gone")
            self.rest += piece

    def open(self, url: str, width: int, height: int, scheme: str = "light", mobile: bool = False) -> None:
        """Load a page at a size and in a colour scheme, and wait until it is there; what was seen before is forgotten."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.send("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def hover(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Write a picture of what is seen, or of the whole page."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def requests(self) -> list[str]:
        """Return the address of everything that the page requested."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [parameters["request"]["url"] for parameters in sent]

    def complaints(self) -> list[Any]:
        """Return what came to the console: messages, errors, exceptions, refusals of the security policy."""
        kinds = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [event["params"] for event in self.events if event.get("method") in kinds]


@contextmanager
def chromium(program: str) -> Iterator[Page]:
    """Start a browser with a fresh profile and give one page of it; end it whatever happens."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()

    def as_three_and_four() -> None:  # where the browser looks for its pipes; copies first, lest one overwrite the other
        first, second = os.dup(commands), os.dup(answers)
        os.dup2(first, 3)
        os.dup2(second, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=as_three_and_four,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        page = Page(to_browser, from_browser)
        try:
            target = page.send("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Runtime", "Log"):
                page.send(f"{domain}.enable")
            yield page
        finally:
            os.close(to_browser)  # the browser leaves when its pipe does
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(from_browser)
