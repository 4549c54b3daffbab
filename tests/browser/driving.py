"""A browser as a person uses it: what is read, written and pressed."""

import base64
import shutil
from urllib.parse import urljoin

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests import services

PATIENCE = 30
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}


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
        return self.driver.find_element(By.TAG_NAME, "body").text

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
            # What was just looked at may belong to the page before.
            waiting = WebDriverWait(
                self.driver, PATIENCE, 0.1, ignored_exceptions=[StaleElementReferenceException]
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

    def picture(self, path):
        """The whole page, as far down as it goes, in few bytes."""
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": self.screen["width"], "height": height, "scale": 1}
        asked = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        told = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        path.write_bytes(base64.b64decode(told["data"]))
