"""What people write on a command line, as values."""

import click
import pytest

from paddock.interfaces.cli.output import age, size
from paddock.interfaces.cli.params import Seconds, Size, argument_vector
from paddock.interfaces.cli.references import by_provider, parse
from paddock.ports.provider import Ref


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512m", 512),
        ("512M", 512),
        ("2g", 2048),
        ("1.5g", 1536),
        ("2GiB", 2048),
        ("64mb", 64),
        ("2048k", 2),
        ("1t", 1 << 20),
        ("300", 300),
        ("0", 0),
    ],
)
def test_sizes_are_in_mib(text, mib):
    assert Size().convert(text, None, None) == mib


@pytest.mark.parametrize("text", ["", "m", "12x", "1e3", "inf", "nan", "1 2", "0x10", "0.3m"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(click.BadParameter, match="write 512m or 2g"):
        Size().convert(text, None, None)


@pytest.mark.parametrize(("text", "seconds"), [("1", 1), ("1.5", 1.5), ("90s", 90), ("2H", 7200)])
def test_times_are_in_seconds(text, seconds):
    assert Seconds().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "-1", "0", "0.0s", "1w", "nan", "inf"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(click.BadParameter):
        Seconds().convert(text, None, None)


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (("ls",), ["ls"]),
        (("./a-b_c.sh",), ["./a-b_c.sh"]),
        (("ls", "a b"), ["ls", "a b"]),
        (("ls | wc",), ["/bin/sh", "-c", "ls | wc"]),
        (("a;b",), ["/bin/sh", "-c", "a;b"]),
        (("$HOME/x",), ["/bin/sh", "-c", "$HOME/x"]),
    ],
)
def test_only_a_single_argument_that_is_no_word_goes_to_the_shell(words, argv):
    assert argument_vector(words) == argv


def test_a_reference_may_name_its_provider():
    assert parse("docker/1", "local") == Ref("docker", "1")
    assert parse("1", "local") == Ref("local", "1")
    assert by_provider(["a/2", "b/1", "a/1", "3"], "b") == [
        ("a", [Ref("a", "2"), Ref("a", "1")]),
        ("b", [Ref("b", "1"), Ref("b", "3")]),
    ]


def test_ages_and_sizes_are_short():
    assert [age(0, now) for now in (5, 65, 7300, 200_000)] == ["5s", "1m", "2h", "2d"]
    assert [size(count) for count in (None, 10, 2048, 5 << 20, 3 << 30)] == [
        "–",
        "10 B",
        "2 KiB",
        "5 MiB",
        "3.0 GiB",
    ]
