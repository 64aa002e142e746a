"""Cron files: a definition, or a refusal that names a place; what is written again reads the same."""

import pytest
from hypothesis import given

from crtrd.config.cronfile import read_table
from crtrd.config.reader import read_definition
from crtrd.core.cron import Definition
from crtrd.errors import ConfigError
from crtrd.supervision.masking import Masking
from tests.fuzz.driver import hostile, inputs, seeds


def check(data):
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    try:
        table = read_table(text, "x.toml")
        definition = read_definition({"name": "x", **table}, where="x.toml", timezone="UTC")
    except ConfigError as error:
        assert "x.toml" in str(error)  # noqa: PT017 - both are right
        assert error.reason  # noqa: PT017 - both are right
    else:
        assert isinstance(definition, Definition)
        assert bool(definition.command) != (definition.shell is not None)
        Masking(definition.change_ignore)


@pytest.mark.parametrize("data", seeds("crons"))
def test_the_corpus(data):
    check(data)


@given(inputs("crons"))
@hostile
def test_whatever_is_written(data):
    check(data)
