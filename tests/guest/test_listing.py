"""Listings in pages, and what they do not enter."""

from itertools import chain

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.guest_client import Guest
from paddock.guest_client.files import Walk

pytestmark = pytest.mark.timeout(60)

TREE = """rm -rf paged; mkdir -p paged/a/b/c paged/a.d paged/e/node_modules/x paged/e/f; cd paged
touch a/1 a/b/2 a/b/c/3 a-b e/node_modules/x/y e/f/4 z; printf x > 'a/\\377'; ln -s a link
for i in $(seq 40); do touch e/f/n$i; done"""


async def pages(guest: Guest, path: str, walk: Walk) -> list[list[str]]:
    found, after = [], ""
    while True:
        again = Walk(walk.depth, walk.closed, after, walk.limit)
        entries, after = await guest.files.list_page(path, again)
        found.append([entry.path for entry in entries])
        if not after:
            return found


@pytest.mark.proves("Q5")
async def test_pages_of_any_size_are_the_whole_listing_in_its_order(guest: Guest) -> None:
    await guest.exec(["sh", "-c", TREE])
    for depth in (1, 2, 9):
        whole = [entry.path for entry in await guest.files.list("paged", depth=depth)]
        for limit in (1, 2, 7, 1000):
            got = await pages(guest, "paged", Walk(depth, limit=limit))
            assert list(chain(*got)) == whole
            assert all(len(page) == limit for page in got[:-1])
    assert any(path.endswith("/a/b/c/3") for path in whole)
    assert not any("/link/" in path for path in whole)
    exact, after = await guest.files.list_page("paged", Walk(9, limit=len(whole)))
    assert (len(exact), after) == (len(whole), "")


async def test_a_page_goes_on_though_what_it_followed_is_gone(guest: Guest) -> None:
    await guest.exec(["sh", "-c", TREE])
    whole = [entry.path for entry in await guest.files.list("paged", depth=9)]
    first, after = await guest.files.list_page("paged", Walk(9, limit=7))
    assert after == "a/b/c/3"
    await guest.files.remove("paged/a/b")
    rest, _ = await guest.files.list_page("paged", Walk(9, after=after, limit=1000))
    assert [entry.path for entry in first] == whole[:7]
    assert [entry.path for entry in rest] == whole[7:]


async def test_closed_directories_are_listed_but_not_entered(guest: Guest) -> None:
    await guest.exec(["sh", "-c", TREE])
    for limit in (0, 1):
        got = chain(*await pages(guest, "paged", Walk(9, ("node_*", "f"), limit=limit)))
        inner = [path.partition("/paged/e")[2] for path in got if "/paged/e/" in path]
        assert inner == ["/f", "/node_modules"]
    # Who asks for one by its name wants to see what is in it.
    asked = await pages(guest, "paged/e/node_modules", Walk(9, ("node_modules",), limit=5))
    assert [path.rpartition("/")[2] for path in asked[0]] == ["x", "y"]


@pytest.mark.parametrize("after", ["../a", "a//b", "/etc", "a/.", "a\0b"])
async def test_a_page_begins_below_its_directory_only(guest: Guest, after: str) -> None:
    await guest.exec(["sh", "-c", TREE])
    with pytest.raises(InvalidRequest):
        await guest.files.list_page("paged", Walk(9, after=after, limit=5))
