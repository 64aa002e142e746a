"""The core on a real ledger (`world`), and a whole daemon (`crtrd`)."""

import pytest

from tests.core.world import World
from tests.instance import Instance


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "ledger.sqlite3")
    yield made
    made.database.close()


@pytest.fixture
def crtrd(tmp_path):
    with Instance(tmp_path / "home") as instance:
        instance.start()
        yield instance
