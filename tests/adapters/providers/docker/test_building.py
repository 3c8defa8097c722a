"""What an engine tells of a build, in bounded memory and whatever a command prints."""

import struct
from collections.abc import AsyncIterator, Iterable

import pytest

from paddock.adapters.providers.docker.building import Steps, lines, unframed

SIGN = "paddock-1f"


async def given(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def frame(text: bytes, stream: int = 1) -> bytes:
    return struct.pack(">BxxxI", stream, len(text)) + text


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 1000])
async def test_frames_are_joined_wherever_they_are_cut(size: int) -> None:
    sent = frame(b"one\ntw") + frame(b"", 2) + frame("o \N{SNOWMAN}\n\n".encode(), 2)
    sent += frame(b"a\rb\r\nend")
    cut = (sent[start : start + size] for start in range(0, len(sent), size))
    told = [line async for line in lines(unframed(given(cut)))]
    assert told == ["one", "two \N{SNOWMAN}", "a", "b", "end"]


async def test_a_line_or_a_frame_that_does_not_end_is_not_kept() -> None:
    """A quarter of a gigabyte without a line's end, in a frame that claims to have four."""
    piece = b"x" * (1 << 20)
    held = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal held
        yield struct.pack(">BxxxI", 1, (1 << 32) - 1)
        for _ in range(256):
            held += len(piece)
            yield piece

    longest = 0
    async for line in lines(unframed(endless())):
        held -= len(line)
        longest = max(longest, len(line))
        assert held <= 2 * len(piece)
    assert longest <= 4096


def test_a_command_that_prints_the_sign_does_not_end_the_build() -> None:
    heard: list[tuple[str, float | None]] = []
    steps = Steps(SIGN, ["a", "b"], lambda text, part: heard.append((text, part)))
    assert steps.current == "a"
    for line in (SIGN, f"{SIGN} and more", f"set -x {SIGN}", SIGN, SIGN, SIGN):
        steps.hear(line)
    assert heard == [("set-up: a", 0.0), ("set-up: b", 0.5)]
    assert steps.current == "b"
