"""Where an instance keeps its files, by its environment."""

from pathlib import Path

import pytest

from crtrd.names import places


@pytest.mark.parametrize("odd", ["", ".", "config", "../up", "~/x"])
def test_folders_that_are_not_absolute_are_ignored(odd):
    """As the XDG base directory specification asks: they would be others in each directory it is started in."""
    environ = {"HOME": "/home/jo", "XDG_CONFIG_HOME": odd, "XDG_STATE_HOME": odd, "XDG_RUNTIME_DIR": odd}
    found = places(environ, user=True)
    assert found == places({"HOME": "/home/jo"}, user=True)
    assert found.config == Path("/home/jo/.config/crtrd")
    assert found.runtime == Path("/home/jo/.local/state/crtrd/run/crtrd")
    assert places({"HOME": odd}, user=True) == places({}, user=True)


def test_absolute_ones_are_taken():
    environ = {"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"}
    found = places(environ, user=True)
    assert (found.config, found.state, found.runtime) == (Path("/c/crtrd"), Path("/s/crtrd"), Path("/r/crtrd"))
