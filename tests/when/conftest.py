"""The worlds of the core's tests serve here too."""

from tests.core.conftest import make_world, world

__all__ = ["make_world", "world"]
