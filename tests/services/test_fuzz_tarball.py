"""Fuzz target: archive members. What is accepted writes nothing outside its directory."""

import io
import os
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.errors import Broken, InvalidRequest, LimitExceeded
from paddock.services.tarball import look_through, to_zip
from tests.harness.fuzz import fuzzed

_NAMES = st.lists(st.sampled_from(["a", "b", "l", ".", "..", "", "é"]), min_size=1, max_size=5).map(
    "/".join
)
_KINDS = st.sampled_from(
    [
        *(tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE),
        *(tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.CONTTYPE, tarfile.AREGTYPE),
    ]
)
_MEMBERS = st.lists(st.tuples(_NAMES, _KINDS, _NAMES), min_size=1, max_size=6)
_FORMATS = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])


def archive(members: list[tuple[str, bytes, str]], form: int) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, 0o755
            content = b"written" if member.isreg() else b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Deep enough that every `..` of an example stays in it."""
    return tmp_path_factory.mktemp("deep")


def everything(place: Path) -> set[str]:
    return {str(each.relative_to(place)) for each in walk(place)}


def walk(place: Path) -> Iterator[Path]:
    for directory, directories, files in os.walk(place):
        for name in (*directories, *files):
            yield Path(directory) / name


def unpack(content: bytes, target: Path) -> None:
    """As the guest does it."""
    argv = ["tar", "-xof", "-", "-C", str(target)]
    subprocess.run(argv, input=content, capture_output=True, check=False, timeout=20)


_counter = iter(range(1 << 30))


@fuzzed(150)
@given(_MEMBERS, _FORMATS)
def test_what_is_accepted_stays_where_it_is_unpacked(place, members, form):
    content = archive(members, form)
    try:
        look_through(io.BytesIO(content))
    except InvalidRequest:
        return
    root = place / str(next(_counter))
    target = root / "1" / "2" / "3" / "4" / "5" / "6"
    target.mkdir(parents=True)
    before = {each for each in everything(root) if not each.startswith("1/2/3/4/5/6/")}
    unpack(content, target)
    after = {each for each in everything(root) if not each.startswith("1/2/3/4/5/6/")}
    assert after == before, members


@fuzzed(150)
@given(_MEMBERS, _FORMATS, st.lists(st.tuples(st.integers(0, 1 << 13), st.binary(max_size=9))))
def test_a_damaged_archive_is_read_or_refused(members, form, damages):
    content = bytearray(archive(members, form))
    for at, piece in damages:
        at %= len(content)
        content[at : at + len(piece)] = piece
    for read in (look_through, lambda source: to_zip(source, io.BytesIO())):
        try:
            read(io.BytesIO(bytes(content)))
        except (Broken, InvalidRequest, LimitExceeded) as error:
            assert error.message


@fuzzed(200)
@given(_MEMBERS, _FORMATS)
def test_a_zip_has_no_name_that_leads_out_of_it(members, form):
    """A sandbox's own tar is what it is made of, and people unpack it with any program."""
    made = io.BytesIO()
    try:
        to_zip(io.BytesIO(archive(members, form)), made)
    except (Broken, InvalidRequest):
        return
    links: set[str] = set()
    for entry in zipfile.ZipFile(made).infolist():
        name = entry.filename
        assert not name.startswith("/")
        assert ".." not in name.split("/")
        assert not [link for link in links if name.startswith(f"{link}/")]
        if stat.S_ISLNK(entry.external_attr >> 16):
            links.add(name)
