"""Commands: true exit codes, clean streams, the right place and user, and no way to hang."""

import asyncio
import time

from paddock.domain.reason import Reason
from paddock.testing.conformance import probes
from paddock.testing.conformance.check import check, isolated
from paddock.testing.conformance.expect import expect, same
from paddock.testing.conformance.refusals import admits_that_nothing_is_fenced
from paddock.testing.conformance.subject import Box, Subject

ALL_BYTES = bytes(range(256))


@check(proves=("E1", "E4"))
async def a_command_ends_with_its_own_exit_code(subject: Subject) -> None:
    """Exit codes arrive as they are, a signal as 128 and its number; 124 may be a plain code."""
    async with subject.sandbox() as box:
        for code in (0, 1, 42, 124, 255):
            result = await box.sh(f"exit {code}")
            same((result.exit_code, result.reason), (code, Reason.EXITED), f"`exit {code}`")
        killed = await box.sh("kill -KILL $$")
        same(killed.exit_code, 137, "the exit code of a killed command")
        expect(killed.reason is not Reason.OOM, "a killed command is taken for out of memory")


@check(proves=("E1",))
async def output_and_errors_come_apart(subject: Subject) -> None:
    """What is written to stdout and to stderr arrives there and nowhere else."""
    async with subject.sandbox() as box:
        result = await box.sh("echo out; echo err >&2; echo out again")
        same(result.stdout, b"out\nout again\n", "stdout")
        same(result.stderr, b"err\n", "stderr")


@check(proves=("E1",))
async def a_command_reads_its_stdin_to_the_end(subject: Subject) -> None:
    """stdin arrives whole and ends; without any, a reader sees the end at once."""
    async with subject.sandbox() as box:
        result = await box.run("cat", stdin=b"one\ntwo\n")
        same(result.stdout, b"one\ntwo\n", "what cat was given")
        same((await box.run("cat")).stdout, b"", "what cat was given when there is nothing")


@check(proves=("E1",))
async def every_byte_survives(subject: Subject) -> None:
    """A megabyte of all byte values passes through stdin, stdout and stderr unchanged."""
    data = ALL_BYTES * 4096
    async with subject.sandbox() as box:
        result = await box.sh("tee /dev/stderr", stdin=data)
        expect(result.stdout == data, f"stdout has {len(result.stdout)} bytes of {len(data)}")
        expect(result.stderr == data, f"stderr has {len(result.stderr)} bytes of {len(data)}")


@check(proves=("E9",))
async def arguments_are_not_read_by_a_shell(subject: Subject) -> None:
    """Every argument arrives as it is: no expansion, no splitting, no substitution."""
    odd = ["", " ", "$(id)", "`id`", "$HOME", "a b", "'\"\\", "*", ";echo", "-n", "\n", "größer ☃"]
    show = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))"
    async with subject.sandbox() as box:
        result = await box.python(show, *odd)
        same(result.stdout.decode().split("\0"), odd, "the arguments")


@check(proves=("E1",))
async def a_command_runs_where_it_is_told_to(subject: Subject) -> None:
    """cwd is honoured; without one a command starts in the user's home, where it may write."""
    async with subject.sandbox() as box:
        same(await box.say("pwd", cwd="/"), "/", "the working directory")
        home = await box.say("cd && pwd -P && echo x > writable && rm writable")
        same(await box.say("pwd -P"), home, "the working directory where none is given")
        await box.say("mkdir -p deep/down")
        same(await box.say("pwd -P", cwd=f"{home}/deep/down"), f"{home}/deep/down", "a deeper one")


@check(proves=("P11",))
async def programs_are_found_by_name(subject: Subject) -> None:
    """PATH leads to the shell, the usual tools and python3, and HOME is set."""
    async with subject.sandbox() as box:
        for name in ("sh", "env", "cat", "ls", "id", "tee", "python3"):
            found = await box.sh('command -v "$1"', name)
            expect(found.exit_code == 0, f"{name} is not found by PATH in the template")
        same(await box.say('test -d "$HOME" && echo there'), "there", "HOME")


@check(proves=("P10",), when=isolated, otherwise=admits_that_nothing_is_fenced)
async def commands_run_as_the_unprivileged_user(subject: Subject) -> None:
    """The default user is `user`, not root; root is had only by asking for it."""
    async with subject.sandbox() as box:
        same(await box.say("id -un"), "user", "the user of a command")
        expect(await box.say("id -u") != "0", "`user` has the uid of root")
        same(await box.say("id -u", user="root"), "0", "the uid of a command run as root")


@check(proves=("E1",))
async def commands_side_by_side_do_not_mix(subject: Subject) -> None:
    """Ten commands at once each get their own input, output and exit code."""
    async with subject.sandbox() as box:

        async def one(number: int) -> tuple[int, bytes]:
            result = await box.sh("sleep 0.1; cat; exit $1", str(number), stdin=b"%d" % number)
            return result.exit_code, result.stdout

        found = await asyncio.gather(*(one(number) for number in range(10)))
        same(found, [(number, b"%d" % number) for number in range(10)], "ten commands at once")


@check(proves=("E3", "E4"))
async def a_deadline_ends_a_command_with_124_and_its_output(subject: Subject) -> None:
    """A command past its deadline ends with 124, the reason, and what it had said until then."""
    async with subject.sandbox() as box:
        started = time.monotonic()
        result = await box.sh("echo before; echo oops >&2; sleep 60; echo after", timeout=1.0)
        same((result.exit_code, result.reason), (124, Reason.DEADLINE), "how it ended")
        same((result.stdout, result.stderr), (b"before\n", b"oops\n"), "what it had said")
        took = time.monotonic() - started
        expect(took < 20 * subject.terms.patience, f"a deadline of 1 s took {took:.0f} s")


@check(proves=("E3",))
async def a_deadline_ends_the_whole_tree(subject: Subject) -> None:
    """Daemons and children deaf to SIGTERM end with the command that started them."""
    async with subject.sandbox() as box:
        beats = ("daemon.beat", "child.beat")
        family = (probes.FAMILY, probes.DAEMON_OF, probes.BEAT, *beats)
        result = await box.python(*family, timeout=2.0)
        same((result.exit_code, result.stdout), (124, b"family\n"), "how the family's head ended")
        for _ in range(8):
            if await _silent(box, *beats):
                return
        expect(False, "processes of a command go on after its deadline")


async def _silent(box: Box, *beats: str) -> bool:
    count = 'cat "$@" | wc -c'
    before = await box.say(count, *beats)
    expect(before != "0", "the processes to be ended never ran")
    await asyncio.sleep(0.4)
    return await box.say(count, *beats) == before
