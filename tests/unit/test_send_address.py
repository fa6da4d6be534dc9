"""Where `stream send --url` connects to."""

import pytest

from opendataflow.cli.streams.http import TOKEN, Sender


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://[::1]", "::1", 80),
        ("http://[::1]:8321/flow", "::1", 8321),
        ("https://[2001:db8::1]", "2001:db8::1", 443),
        ("http://localhost", "localhost", 80),
    ],
)
def test_the_port_of_an_address_is_never_a_part_of_the_host(
    monkeypatch: pytest.MonkeyPatch, url: str, host: str, port: int
) -> None:
    monkeypatch.setenv(TOKEN, "t")
    sender = Sender(url, "crm", "leads")
    assert (sender._connection.host, sender._connection.port) == (host, port)
    sender.close()
