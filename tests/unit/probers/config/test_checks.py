"""Which addresses probes may go to, and how they are written."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.config.checks import MAX_CHARACTERS, unicast


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be an IPv4 or IPv6 address"),
        ("host.example", "must be an IPv4 or IPv6 address"),
        ("::", "others must reach it"),
        ("ff02::1", "one host"),
        ("240.0.0.1", "one host"),
        ("fe80::1", "link-local"),
        ("fd00::1%1", "names an interface"),
        ("::ffff:10.0.0.1", "write it as 10.0.0.1"),
        ("1" * 46, "46 characters; at most 45"),
    ],
)
def test_what_is_no_address_of_one_host_is_refused_with_the_reason(text: str, reason: str) -> None:
    """The message says what is wrong with it, or what to write instead."""
    with pytest.raises(ValueError, match=reason):
        unicast(text)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    """Texts come from Kafka: nothing else is raised, and what is taken is bounded."""
    try:
        spelled = unicast(text)
    except ValueError:
        return
    assert len(spelled) <= MAX_CHARACTERS


@given(st.ip_addresses(v=6))
def test_all_spellings_of_an_address_become_one(address: ipaddress.IPv6Address) -> None:
    """Written out, in capitals or short: the same text, which is its own spelling."""
    try:
        spelled = unicast(str(address))
    except ValueError:
        return
    assert unicast(address.exploded.upper()) == spelled == unicast(spelled)
