"""The one URL grammar."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from config.errors import IntakeError
from config.urls import is_loopback_host, parse_url, url_problem

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "url_vectors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{i}-{v['why']}" for i, v in enumerate(VECTORS)])
def test_grammar_is_the_on_chain_one_for_payload_and_fetch(vector: dict[str, object]) -> None:
    """Every recorded URL is accepted exactly when the on-chain grammar accepts it.

    Deliberate difference: the recorded fetch grammar also takes an upper-case scheme; here both sides share one
    grammar, so such a URL is refused by the fetcher, too.
    """
    assert (url_problem(vector["url"]) == "") is vector["payload_accept"]


@pytest.mark.parametrize(
    ("url", "host", "port", "target"),
    [
        ("https://h.example/a/b?c=d", "h.example", 443, "/a/b?c=d"),
        ("https://h.example:8443", "h.example", 8443, "/"),
        ("https://h.example?x=1", "h.example", 443, "/?x=1"),
        ("https://h.example/a#", "h.example", 443, "/a"),
        ("https://[2606:4700::1111]:1/a", "2606:4700::1111", 1, "/a"),
    ],
)
def test_parts_are_what_a_request_needs(url: str, host: str, port: int, target: str) -> None:
    """Host, port and target come from the same parse that accepted the URL."""
    parsed = parse_url(url)
    assert (parsed.host, parsed.port, parsed.target) == (host, port, target)


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        b"https://h.example/",
        "",
        "https://h.example:0/",
        "https://h.example:99999999999/",
        "https://h.example:1:2/",
        "https://a\\@b.example/",
        "https://h.exa[mple/",
        "https://[::1/",
        "https://[::1]x/",
        "https://[not-an-address]/",
        "https://h.example/\x7f",
    ],
)
def test_odd_urls_are_refused_with_a_reason(url: object) -> None:
    """Values that clients would read differently, or not at all, are refused and the error says why."""
    assert url_problem(url)
    with pytest.raises(IntakeError) as caught:
        parse_url(url)
    assert caught.value.code == "URL_REFUSED"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_plain_http_is_for_loopback_where_allowed(host: str) -> None:
    """A devnet node may fetch from its own machine without TLS; everyone else may not."""
    assert url_problem(f"http://{host}:8000/a")
    assert not url_problem(f"http://{host}:8000/a", allow_loopback_http=True)


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "127.0.0.1.example.org", "localhost.example", "127.1"])
def test_plain_http_is_refused_elsewhere_even_where_allowed(host: str) -> None:
    """Only a literal loopback host counts as loopback."""
    assert not is_loopback_host(host)
    assert url_problem(f"http://{host}/a", allow_loopback_http=True)
