"""A real browser without a window, and without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

NAMES: Final = (("chromium", "chromedriver"), ("google-chrome", "chromedriver"))
_NO_NETWORK: Final = "--host-resolver-rules=MAP * ~NOTFOUND"
_DRAWN: Final = """
    const look = () =>
      document.documentElement.dataset.drawn ? arguments[0]() : requestAnimationFrame(look);
    look();
"""
_TOLD: Final = """
    window.told = new Promise((done) => {
      const query = matchMedia(arguments[0]);
      if (query.matches) done();
      query.addEventListener("change", () => done(), { once: true });
    });
"""


def installed() -> tuple[str, str] | None:
    """Where browser and driver are; None if either is missing."""
    for names in NAMES:
        browser, driver = map(shutil.which, names)
        if browser and driver:
            return browser, driver
    return None


class Browser:
    """One window, used for one page after the other."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, *, width: int = 1360, scheme: str = "light") -> Browser:
        """Loads the page and waits until it has drawn. scheme: what the system prefers."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        self.prefer(scheme)
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.resolve().as_uri())
        self.driver.execute_async_script(_DRAWN)
        return self

    def prefer(self, scheme: str) -> None:
        """Returns once the page was told and has drawn: on a busy machine, frames later."""
        self.driver.execute_script(_TOLD, f"(prefers-color-scheme: {scheme})")
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        self.driver.execute_async_script(
            "window.told.then(() => requestAnimationFrame(() => arguments[0]()))"
        )

    def __call__(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript expression; `arguments` are its `arguments`."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def said(self) -> list[str]:
        """What stands in the console since the page was opened."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """Addresses that the page asked for, itself included."""
        messages = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def marks(self, chart: str, selector: str) -> int:
        """Elements drawn in a chart."""
        count = "document.querySelectorAll(`[data-chart='${arguments[0]}'] ${arguments[1]}`).length"
        return int(self(count, chart, selector))

    def color(self, selector: str, name: str = "color") -> str:
        return str(
            self(
                "getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]",
                selector,
                name,
            )
        )


@contextmanager
def browser() -> Iterator[Browser]:
    """Needs what `installed` finds."""
    found = installed()
    assert found is not None
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", _NO_NETWORK,
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--no-proxy-server", "--hide-scrollbars",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(found[1]))
    driver.set_script_timeout(240)  # seconds: a frame comes late on a busy machine
    try:
        yield Browser(driver)
    finally:
        driver.quit()
