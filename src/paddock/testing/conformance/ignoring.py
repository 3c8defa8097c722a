"""Snapshots that leave paths out: these and no others, and never from the sandbox itself."""

from paddock.domain.errors import Conflict, InvalidRequest, Unsupported
from paddock.ports.provider import Capabilities
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, listed, refused, same
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.subject import Box, Subject

# The same names lie where a rule says and where none does.
_LAY_OUT = """
mkdir -p out src/out/deep caches work
echo built > out/built; echo source > src/out/source; echo more > src/out/deep/more
echo a > caches/a.tmp; echo b > caches/.b.tmp; echo keep > caches/keep
echo '[x]' > 'caches/[x]'; echo x > caches/x
echo precious > work/precious; ln -s work link; ln -s work caches/link.tmp
"""
_RULES = ("out", "caches/*.tmp", "caches/[x]", "link/precious", "absent/path")
_MET = ["caches/.b.tmp", "caches/[x]", "caches/a.tmp", "caches/link.tmp", "out"]
_KEPT = ["caches", "caches/keep", "caches/x", "link", "src", "src/out", "src/out/deep"]
_KEPT += ["src/out/deep/more", "src/out/source", "work", "work/precious"]
_SHOW = "find caches link out src work 2>/dev/null | LC_ALL=C sort"


def _leaves_out(capabilities: Capabilities) -> bool:
    return capabilities.snapshot_ignore


refuses_to_leave_out = refuses(
    snapshot_that_leaves_out=lambda subject, ref: subject.snapshot(ref, ignore=("/tmp/*",)),  # noqa: S108
)


async def _home(box: Box) -> str:
    return await box.say("pwd -P")


@check(proves=("N1",), when=_leaves_out, otherwise=refuses_to_leave_out)
async def a_snapshot_leaves_out_what_rules_name_and_nothing_else(subject: Subject) -> None:
    """A directory of the same name elsewhere stays, and no link leads a rule astray."""
    async with subject.sandbox() as box:
        await box.say(_LAY_OUT)
        home, before = await _home(box), await box.say(_SHOW)
        taken = await subject.snapshot(box.ref, ignore=tuple(f"{home}/{one}" for one in _RULES))
        same(await box.say(_SHOW), before, "the sandbox itself")
        same(sorted(taken.left_out.paths), [f"{home}/{one}" for one in _MET], "left_out.paths")
        same(taken.left_out.count, len(_MET), "left_out.count")
        async with subject.sandbox(snapshot=taken.ref) as copy:
            same((await copy.say(_SHOW)).split("\n"), sorted(_KEPT), "files of the copy")
            same(await copy.say("cat work/precious"), "precious", "what a link led to")
    found = [one for one in await listed(subject.provider.snapshots()) if one.ref == taken.ref]
    same(found, [taken], "snapshots() afterwards")


@check(proves=("N1",), when=_leaves_out, otherwise=refuses_to_leave_out)
async def a_snapshot_without_rules_and_a_fork_leave_nothing_out(subject: Subject) -> None:
    """Also of a sandbox of which a snapshot with rules was taken before."""
    async with subject.sandbox() as box:
        await box.say(_LAY_OUT)
        home, before = await _home(box), await box.say(_SHOW)
        await subject.snapshot(box.ref, ignore=(f"{home}/out",))
        taken = await subject.snapshot(box.ref)
        same((taken.ignore, taken.left_out.count), ((), 0), "what it says of itself")
        async with subject.sandbox(snapshot=taken.ref) as copy:
            same(await copy.say(_SHOW), before, "files of the copy")
        if subject.capabilities.fork:
            spec = subject.spec(template="")
            forked = subject.remember(await subject.provider.fork(box.ref, subject.key(), spec))
            async with subject.reached(forked) as fork:
                same(await fork.say(_SHOW), before, "files of a fork")


async def refuses_rules_under_a_known_key(subject: Subject) -> None:
    able = subject.capabilities.snapshot
    async with subject.sandbox() as box:
        key = subject.key()
        before = [await subject.snapshot(box.ref, key)] if able else []
        call = subject.snapshot(box.ref, key, ignore=("/tmp/*",))  # noqa: S108
        await refused(call, Unsupported, "snapshot() with rules")
        if able:
            there = await listed(subject.provider.snapshots())
            same([one for one in there if one.key == key], before, "snapshots() under the key")


@check(when=_leaves_out, otherwise=refuses_rules_under_a_known_key)
async def a_key_stands_for_a_snapshot_with_its_rules(subject: Subject) -> None:
    """With the same rules it gives the same snapshot, with others it is Conflict."""
    async with subject.sandbox() as box:
        key, rules = subject.key(), (f"{await _home(box)}/out",)
        taken = await subject.snapshot(box.ref, key, ignore=rules)
        same(taken.ignore, rules, "the rules that it says of itself")
        same(await subject.snapshot(box.ref, key, ignore=rules), taken, "a second snapshot()")
        for other in ((), (*rules, "/var/tmp/*")):  # noqa: S108
            await refused(subject.snapshot(box.ref, key, ignore=other), Conflict, f"rules {other}")
        there = await listed(subject.provider.snapshots())
        same([one for one in there if one.key == key], [taken], "snapshots() under one key")


@check(proves=("N1",), when=_leaves_out, otherwise=refuses_to_leave_out)
async def rules_that_could_lose_work_are_refused(subject: Subject) -> None:
    """Bare names, patterns above the last part, and whatever covers where commands start."""
    async with subject.sandbox() as box:
        home, before = await _home(box), await listed(subject.provider.snapshots())
        bad = ["out", "**/out", f"{home}/*/out", "/**", "/", f"{home}/../out", home, f"{home}/*"]
        for rule in bad:
            await refused(subject.snapshot(box.ref, ignore=(rule,)), InvalidRequest, rule)
        if subject.capabilities.checkpoint:
            call = subject.snapshot(box.ref, memory=True, ignore=(f"{home}/out",))
            await refused(call, InvalidRequest, "rules with memory")
        after = await listed(subject.provider.snapshots())
        expect(len(after) == len(before), "a refused snapshot is there")
