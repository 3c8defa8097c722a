"""What belongs to another team is looked for like what never was.

Issue: ids of other teams distinguishable by timing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event

from paddock.domain.ids import new_id

_TRIES = 10


@contextmanager
def statements() -> Iterator[list[str]]:
    """Whatever is asked of any database meanwhile."""
    heard: list[str] = []

    def hear(_connection, _cursor, statement, *_more) -> None:
        if not statement.startswith("SELECT event.seq"):  # a shared database is asked for news
            heard.append(statement)

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


async def test_what_is_anothers_is_looked_for_like_what_never_was(plane):
    """Not by the clock: the same statements are executed, and none of them finds a row."""
    client = await plane.team("strangers-to-all")
    box = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    token = await plane.admin.post("/v1/tokens", {"name": "theirs"})
    person = await plane.admin.post("/v1/people", {"name": "Ada", "role": "member"})
    for method, path, foreign in (
        ("GET", "/v1/sandboxes/{}", box["id"]),
        ("POST", "/v1/sandboxes/{}/stop", box["id"]),
        ("DELETE", "/v1/tokens/{}", token["id"]),
        ("GET", "/v1/people/{}", person["id"]),
        ("GET", "/v1/sandboxes/{}/commands", box["id"]),
        ("GET", "/v1/sandboxes/{}/events/sources", box["id"]),
        ("DELETE", "/v1/sandboxes/{}", box["id"]),
    ):
        absent = new_id(foreign.partition("_")[0])
        await plane.admin.get(f"/v1/sandboxes/{box['id']}")  # it is remembered
        await client.call(method, path.format(absent))
        # Background work sends statements, too, but not every time.
        for _ in range(_TRIES):
            for_absent = await asked(client, method, path.format(absent))
            for_foreign = await asked(client, method, path.format(foreign))
            if for_foreign == for_absent:
                break
        assert for_foreign == for_absent, path


async def asked(client, method, path) -> list[str]:
    """The statements of a request that is answered with 404."""
    with statements() as heard:
        answer = await client.call(method, path)
    assert answer.status == 404, path
    return heard
