"""A world for each test."""

import pytest

from tests.core.world import World


@pytest.fixture
def make_world(tmp_path):
    made = []

    def make(limits=None):
        made.append(World(tmp_path / f"ledger-{len(made)}.sqlite3", limits))
        return made[-1]

    yield make
    for world in made:
        world.database.close()


@pytest.fixture
def world(make_world):
    return make_world()
