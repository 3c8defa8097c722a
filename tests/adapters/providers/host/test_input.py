"""What programs are given to read, whether they read it or not."""

import asyncio

import uvloop

from paddock.adapters.providers.host.input import readable

TEXT = "line\n" * 200_000


async def given(*argv: str) -> bytes:
    with readable(TEXT) as descriptor:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdin=descriptor, stdout=pipe)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output


def test_who_reads_has_all_of_it_and_who_does_not_fails_nobody():
    async def main() -> None:
        assert await given("cat") == TEXT.encode()
        for _ in range(20):
            assert await given("true") == b""

    uvloop.run(main())
