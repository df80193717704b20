"""What every part of the screen has."""

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hubbub_tui.app import HubbubApp


class Part:
    """Mixed into widgets and screens of this package."""

    @property
    def hub_app(self) -> "HubbubApp":
        """The application that they are shown by."""
        return cast("HubbubApp", cast("Any", self).app)
