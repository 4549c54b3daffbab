"""Every page of the admin is to be seen in the documentation, and no picture is of nothing."""

import re
import struct
from pathlib import Path

from django.contrib import admin

from django_jobs.admin.base import ReadOnlyAdmin
from tests.browser.pictures import ARE_NO_PAGES, IMAGES, LOOKS, PICTURES, all_pictures
from tests.house.findings import listed

DOCS = Path(__file__).resolve().parents[2] / "docs"
PREFIX = "django_jobs_"
OF_DJANGO = ("_history", "_delete")
"""Pages that Django makes of every model, and that are as it makes them."""
MOST_BYTES = 150_000


def addresses():
    """The names of all addresses of our part of the admin that lead somewhere."""
    for model, page in admin.site._registry.items():
        if model._meta.app_label != "django_jobs":
            continue
        # Nobody can add a row of the others: there the answer is 403.
        none = (*OF_DJANGO, "_add") if isinstance(page, ReadOnlyAdmin) else OF_DJANGO
        for pattern in page.get_urls():
            name = (pattern.name or "").removeprefix(PREFIX)
            if name and not name.endswith(none):
                yield name


def shown():
    """The pictures that some page of the documentation shows or leads to."""
    pages = (page.read_text("utf-8") for page in DOCS.rglob("*.md"))
    return {name for text in pages for name in re.findall(r"\(\S*images/([\w-]+)\.png\)", text)}


def test_every_page_has_a_picture():
    assert set(addresses()) - ARE_NO_PAGES == PICTURES.keys()


def test_they_were_taken_wide_and_narrow_by_day_and_by_night():
    wrong = []
    for name in all_pictures():
        widths = []
        for look in LOOKS:
            picture = (IMAGES / f"{name}{look}.png").read_bytes()
            if len(picture) >= MOST_BYTES:
                wrong.append(f"{name}{look} has {len(picture)} bytes")
            widths.append(struct.unpack(">I", picture[16:20])[0])
        if widths != [1280, 1280, 390, 390]:
            wrong.append(f"{name} is {widths} wide")
    assert not wrong, listed(wrong)


def test_every_picture_is_shown_and_there():
    there = {picture.stem for picture in IMAGES.glob("*.png")}
    assert there == {f"{name}{look}" for name in all_pictures() for look in LOOKS}
    assert shown() == there
