"""The settings of whichever Django contestant this process belongs to."""

from typing import TYPE_CHECKING, cast

from tests.benchmarks.rivals.contestants import chosen

if TYPE_CHECKING:
    from tests.benchmarks.rivals.site import DjangoSite

globals().update(cast("DjangoSite", chosen()).settings())
