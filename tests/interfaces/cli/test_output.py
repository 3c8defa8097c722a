"""What a terminal is shown of text that a sandbox has chosen."""

import pytest

from paddock.interfaces.cli.output import printable


def test_tabs_stay_and_colours_go_while_the_rest_of_a_message_is_as_it_was():
    said = "\x1b[1;31mFAIL\x1b[0m\tcart.py:\tästhetisch 👩\u200d💻 1\u00a0000"
    assert printable(said) == "FAIL\tcart.py:\tästhetisch 👩\u200d💻 1\u00a0000"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("title\x1b]0;owned\x07", r"title\x1b]0;owned\x07"),
        ("back\rover", r"back\rover"),
        ("two\nlines", r"two\nlines"),
        ("erase\x1b[2K", r"erase\x1b[2K"),
        ("c1\x9b31m", r"c1\x9b31m"),
        ("admin\u202etxt.exe", r"admin\u202etxt.exe"),
        ("half \udc80", r"half \udc80"),
    ],
)
def test_only_what_a_terminal_would_obey_is_escaped(said, shown):
    assert printable(said) == shown
