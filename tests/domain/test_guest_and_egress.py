"""Small facts about the values said to and about a guest."""

from paddock.domain.egress import CLOSED, EgressPolicy
from paddock.domain.guest import CommandResult, GuestAddress


def test_egress_is_closed_unless_said_otherwise():
    assert EgressPolicy() == CLOSED
    assert CLOSED.mode == "none"


def test_the_text_of_a_commands_output_survives_bytes_that_are_not_utf8():
    assert CommandResult(0, b"a\xffb", b"").text == "a\N{REPLACEMENT CHARACTER}b"


def test_a_guests_token_does_not_show_when_its_address_is_printed():
    assert "hush" not in repr(GuestAddress(url="http://x", token="hush"))
