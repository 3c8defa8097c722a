"""What git says of its progress, read as numbers: as it was written by git 2.39."""

import pytest

from paddock.interfaces.cli.receiving import Received, Telling

MIB = 1 << 20


def told(*pieces: str) -> Telling:
    telling = Telling()
    for piece in pieces:
        telling.take(piece)
    telling.close()
    return telling


@pytest.mark.parametrize(
    ("line", "received"),
    [
        ("Receiving objects:  12% (3/25), 1.50 MiB | 512.00 KiB/s\r", (3, 25, 1572864, 3)),
        ("Receiving objects:   0% (1/203)\r", (1, 203, None)),
        ("Receiving objects:   4% (9/203), 120 bytes | 60 bytes/s\r", (9, 203, 120, 9)),
        ("Receiving objects: 100% (2/2), 3.25 GiB | 1.00 MiB/s, done.\n", (2, 2, 3489660928, 2)),
        ("Unpacking objects:  50% (1/2), 2.00 KiB | 1.00 KiB/s\r", (1, 2, 2048, 1)),
        ("Receiving objects:  50% (1/2", (0, 0, None)),
        ("Receiving objects:  50% (1/2), lots | and more\r", (0, 0, None)),
        ("remote: Receiving objects:  50% (1/2), 9.00 GiB | 1.00 KiB/s\r", (0, 0, None)),
        ("remote: Counting objects:  50% (1/2)\r", (0, 0, None)),
        ("", (0, 0, None)),
    ],
)
def test_a_line_of_progress_is_read_as_numbers(line, received):
    assert told(line).received == Received(*received)


def test_a_size_belongs_to_the_objects_that_had_come_when_it_was_told():
    first = "Receiving objects:  25% (1/4), 1.00 MiB | 1.00 MiB/s\r"
    repeated = "Receiving objects:  50% (2/4), 1.00 MiB | 1.00 MiB/s\r"
    for later in (repeated, "Receiving objects:  50% (2/4)\r"):
        received = told(first, later).received
        assert received == Received(2, 4, MIB, 1)
        assert received.whole_bytes == 4 * MIB


@pytest.mark.parametrize(
    ("received", "whole", "fraction"),
    [
        (Received(1, 4, MIB, 1), 4 * MIB, 0.25),
        (Received(4, 4, MIB, 4), MIB, 1.0),
        (Received(0, 4, MIB), None, 0.0),
        (Received(1, 4), None, 0.25),
        (Received(), None, None),
        (Received(5, 4, MIB, 5), MIB, 1.0),
    ],
)
def test_the_whole_size_is_estimated_from_what_came_or_unknown(received, whole, fraction):
    assert (received.whole_bytes, received.fraction) == (whole, fraction)


def test_where_the_pieces_end_does_not_matter():
    said = (
        "Cloning into '/tmp/x'...\nremote: Enumerating objects: 25, done.\nwarning: odd\n"
        "Receiving objects:  12% (3/25), 1.50 MiB | 512.00 KiB/s\rfatal: early EOF"
    )
    for size in (1, 2, 7, 1000):
        telling = told(*(said[at : at + size] for at in range(0, len(said), size)))
        assert telling.received == Received(3, 25, 1572864, 3)
        assert telling.words == ["warning: odd", "fatal: early EOF"]


def test_it_is_known_when_everything_has_come():
    assert not told("Receiving objects:  50% (1/2)\r").is_here
    assert told("Receiving objects: 100% (2/2), done.\n").is_here
    assert told("Updating files:  50% (1/2)\r").is_here
    assert not told("remote: Updating files:  50% (1/2)\r").is_here


def test_what_is_kept_of_one_that_talks_without_end_is_bounded():
    telling = told(*["x" * 10_000] * 100, "\n", *["remote: no\n"] * 10_000)
    assert len(telling.words) == 50
    assert sum(map(len, told("y" * 100_000).words)) <= 4096
