"""Just enough of a browser: cookies, redirects, and forms filled as a person fills them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

from testproject.demo.telling import DidNotHappen

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 20


@dataclass(slots=True)
class Form:
    """A form of a page, with the values its hidden fields came with."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Page:
    """What an address answered."""

    url: str
    text: str
    forms: list[Form]

    def form_with(self, name: str) -> Form:
        """The form that has a field of that name."""
        for form in self.forms:
            if name in form.names:
                return form
        raise DidNotHappen(f"{self.url} has a form with a field {name!r}")


class Browser:
    """Follows links and posts forms of one site."""

    def __init__(self, base: str) -> None:
        self.base = base
        # No proxy of the environment: the site is on this machine.
        self._opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))

    def get(self, path: str) -> Page:
        return self._page(Request(urljoin(self.base, path)))  # noqa: S310 - our own site

    def submit(self, page: Page, form: Form, values: Mapping[str, str]) -> Page:
        """Post a form with its hidden fields, the CSRF token among them."""
        data = urlencode({**form.fields, **values}).encode()
        url = urljoin(page.url, form.action)
        return self._page(Request(url, data=data, headers={"Referer": page.url}))  # noqa: S310 - as above

    def _page(self, request: Request) -> Page:
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                text = response.read().decode()
                reader = _Reader()
                reader.feed(text)
                return Page(response.url, text, reader.forms)
        except HTTPError as error:
            what = f"{request.get_method()} {request.full_url} answers with a page"
            raise DidNotHappen(f"{what}: it answered {error.code} {error.reason}") from error
        except URLError as error:
            raise DidNotHappen(f"{request.full_url} can be reached: {error.reason}") from error


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(said.get("action", "")))
            self._inside = True
        elif self._inside and tag in {"input", "select", "textarea"} and said.get("name"):
            form = self.forms[-1]
            form.names.add(said["name"])
            if said.get("type") == "hidden":
                form.fields[said["name"]] = said.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
