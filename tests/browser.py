"""A browser without a window, for tests of pages: Debian's chromium and chromium-driver, or Chrome with its driver."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[test]'")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    pytest.skip("no Chromium: apt-get install chromium chromium-driver", allow_module_level=True)


@contextlib.contextmanager
def started_browser() -> Iterator[webdriver.Chrome]:
    """A driver, which logs what the page's console says."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,900"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
