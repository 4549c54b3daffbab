"""A browser as a person uses it: what is read, written and pressed."""

import shutil
from urllib.parse import urljoin

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests import services
from tests.browser.palette import with_palette

PATIENCE = 30
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
# A cell that ends beyond what holds it can be read by nobody who does not think of scrolling.
CUT_OFF = """
return [...document.querySelectorAll(
  '#result_list td, .dj-attempts td, .dj-kinds td, .dj-tiles span')]
  .filter((one) => one.getBoundingClientRect().right >
    one.closest('.results, .dj-wide, .dj-tiles li').getBoundingClientRect().right + 1)
  .map((one) => one.className + one.textContent)
"""


def chromium():
    """A new headless Chromium, from the programs of this machine."""
    options = Options()
    options.binary_location = shutil.which(services.BROWSER) or services.BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-proxy-server", "--hide-scrollbars", "--lang=en-US"):  # fmt: skip
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(shutil.which(services.BROWSER_DRIVER)))
    driver.set_page_load_timeout(PATIENCE)
    return driver


class Browser:
    """One window at one site."""

    def __init__(self, driver, base):
        self.driver = driver
        self.base = base
        self.expected = []
        self.driver.get_log("browser")
        self.look(DESKTOP)

    def look(self, metrics, scheme="light"):
        """Be a screen of a certain size, by day or by night."""
        self.screen = metrics
        command = self.driver.execute_cdp_cmd
        command("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        command("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, path):
        self.driver.get(urljoin(self.base, path))

    @property
    def text(self):
        # In one step: an element that was found may belong to the page before when it is read.
        return self.driver.execute_script("return document.body ? document.body.innerText : ''")

    @property
    def path(self):
        """That of the page that has come, whole; nothing while one is on its way."""
        return self.driver.execute_script(
            "return document.readyState === 'complete' ? location.pathname : null"
        )

    def write(self, name, text):
        field = self.driver.find_element(By.NAME, name)
        field.clear()
        field.send_keys(text)

    def value_of(self, name):
        return self.driver.find_element(By.NAME, name).get_attribute("value")

    def press(self, label):
        """A button or link with exactly that label."""
        quoted = f'"{label}"'
        way = (
            f"//button[normalize-space()={quoted}] | //a[normalize-space()={quoted}]"
            f" | //input[@type='submit' and @value={quoted}]"
        )
        found = self.driver.find_elements(By.XPATH, way)
        assert found, f"there is no {label!r} on {self.driver.current_url}:\n{self.text}"
        found[0].click()

    def has(self, label):
        return bool(self.driver.find_elements(By.LINK_TEXT, label))

    def until(self, condition, what):
        try:
            # What was just looked at may belong to the page before, or end with it: then the
            # browser answers with one error or another, and is asked again.
            waiting = WebDriverWait(
                self.driver, PATIENCE, 0.1, ignored_exceptions=[WebDriverException]
            )
            waiting.until(lambda _: condition())
        except Exception as error:
            raise AssertionError(f"{what} did not happen; the page says:\n{self.text}") from error

    def until_it_says(self, words):
        # Style sheets may write what they like in capitals.
        self.until(lambda: words.casefold() in self.text.casefold(), f"{words!r}")

    def complaints(self):
        """What the console said: errors of scripts, refused loads, breaches of the policy."""
        told = [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] in {"SEVERE", "WARNING"}
        ]
        # Browsers ask for this by themselves; the admin has none.
        return [line for line in told if "/favicon.ico" not in line]

    def assert_calm(self):
        found = self.complaints()
        unexpected = [line for line in found if not any(word in line for word in self.expected)]
        assert not unexpected, unexpected

    def overflows(self):
        """By how many pixels the page is wider than the screen."""
        return self.driver.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def cut_off(self):
        """The cells that cannot be seen whole."""
        return self.driver.execute_script(CUT_OFF)

    def picture(self, path):
        """The whole page, as far down as it goes, in few bytes."""
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": self.screen["width"], "height": height, "scale": 1}
        asked = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        told = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        path.write_bytes(with_palette(self.driver, told["data"]))
