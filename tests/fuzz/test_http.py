"""Bytes on the trigger socket: a request, or a refusal that can be sent; however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtrd.control.access import Caller
from crtrd.trigger.request import BODY_MOST, Reader, Rejected, Response
from crtrd.trigger.routes import serve
from tests.dbus.standin import StandIn
from tests.fuzz.driver import hostile, inputs, seeds

ROOT = Caller(0, 1, "socket")


def check(data, cut=0):
    reader, sent = Reader(), []
    try:
        request = reader.feed(data[:cut]) if cut else None
        if request is None:
            request = reader.feed(data[cut:]) if data[cut:] else None
        reader.interim()
        request = request or reader.feed(b"")
        if request is not None:
            assert len(request.body) <= BODY_MOST
            serve(StandIn(allowed={0}), request, ROOT, sent.append)
    except Rejected as rejected:
        sent.append(rejected.response)
    for response in sent:
        assert isinstance(response, Response)
        assert 200 <= response.status <= 503
        reader.write(response)
    assert len(sent) <= 1


@pytest.mark.parametrize("data", seeds("http"))
def test_the_corpus(data):
    check(data)


@given(inputs("http"), st.integers(0, 400))
@hostile
def test_whatever_is_sent(data, cut):
    check(data, min(cut, len(data)))
