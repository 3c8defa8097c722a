"""Volumes: what one sandbox writes another reads, and it outlives both."""

from collections.abc import AsyncIterator

from paddock.domain.errors import NotFound, Unsupported
from paddock.domain.ids import new_id
from paddock.domain.volume import VOLUME_PREFIX, VolumeMount
from paddock.ports.provider import Capabilities
from paddock.ports.volumes import Attributes, EntryKind
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import refused, same
from paddock.testing.conformance.refusals import refuses
from paddock.testing.conformance.subject import Subject

_PATH = "/mnt/shared"


def _has_volumes(capabilities: Capabilities) -> bool:
    return capabilities.volumes


def _new() -> str:
    return new_id(VOLUME_PREFIX)


async def _made(subject: Subject, size_mib: int | None = None) -> str:
    volume = _new()
    subject.volumes.append(volume)
    await subject.provider.create_volume(volume, size_mib)
    return volume


def _mounted(volume: str, *, read_only: bool = False) -> tuple[VolumeMount, ...]:
    return (VolumeMount(volume, _PATH, read_only=read_only),)


refuses_volumes = refuses(
    create_volume=lambda subject, _: subject.provider.create_volume(_new(), None),
    delete_volume=lambda subject, _: subject.provider.delete_volume(_new()),
    open_volume=lambda subject, _: subject.provider.open_volume(_new()),
    create=lambda subject, _: subject.provider.create(
        subject.key(), subject.spec(volumes=_mounted(_new()))
    ),
)


@check(when=_has_volumes, otherwise=refuses_volumes)
async def sandboxes_share_a_volume_that_outlives_them(subject: Subject) -> None:
    """The user of sandboxes reads and writes it, in all that mount it, until it is deleted."""
    volume = await _made(subject)
    async with (
        subject.sandbox(volumes=_mounted(volume)) as one,
        subject.sandbox(volumes=_mounted(volume, read_only=True)) as two,
    ):
        await one.say(f"cd {_PATH} && mkdir sub && echo shared > sub/file")
        same(await two.say(f"cat {_PATH}/sub/file"), "shared", "what the other sandbox reads")
        tried = await two.sh(f"echo more >> {_PATH}/sub/file")
        same(tried.exit_code == 0, False, "whether it is written to where it is read-only")
        await two.sh(f": > {_PATH}/sub/file", user="root")
        same(await one.say(f"cat {_PATH}/sub/file"), "shared", "it after root has truncated it")
        if subject.capabilities.stop:
            await subject.provider.stop(one.ref)
            again = await subject.provider.start(one.ref)
            async with subject.reached(again) as started:
                same(await started.say(f"cat {_PATH}/sub/file"), "shared", "it after a restart")
    async with subject.sandbox(volumes=_mounted(volume)) as later:
        same(await later.say(f"cat {_PATH}/sub/file"), "shared", "what a later sandbox reads")
        await subject.provider.delete_volume(volume)
        same(await later.say(f"ls {_PATH} | wc -l"), "0", "what is left after delete_volume()")
    await subject.provider.delete_volume(volume)
    spec = subject.spec(volumes=_mounted(volume))
    await refused(subject.provider.create(subject.key(), spec), NotFound, "create() without it")
    same(await subject.mine(), [], "sandboxes after a refusal")


@check(when=_has_volumes, otherwise=refuses_volumes)
async def a_volume_is_no_part_of_a_disk(subject: Subject) -> None:
    """A snapshot has none of its files, and what is made of one mounts it as it is by then."""
    volume = await _made(subject)
    async with subject.sandbox(volumes=_mounted(volume)) as box:
        await box.say(f"echo then > {_PATH}/file; echo mine > own")
        if subject.capabilities.snapshot:
            shot = await subject.snapshot(box.ref)
            await box.say(f"echo now > {_PATH}/file")
            async with subject.sandbox(snapshot=shot.ref, volumes=_mounted(volume)) as copy:
                same(await copy.say(f"cat {_PATH}/file own"), "now\nmine", "a copy with it")
            async with subject.sandbox(snapshot=shot.ref) as bare:
                same(await bare.say("cat own"), "mine", "a copy without it")
                tried = await bare.sh(f"cat {_PATH}/file")
                same(tried.exit_code == 0, False, "whether the snapshot has the volume's files")
        if subject.capabilities.fork:
            spec = subject.spec(template="", volumes=_mounted(volume))
            forked = subject.remember(await subject.provider.fork(box.ref, subject.key(), spec))
            async with subject.reached(forked) as fork:
                await fork.say(f"echo forked > {_PATH}/file")
            same(await box.say(f"cat {_PATH}/file"), "forked", "what a fork has written")


@check(when=_has_volumes, otherwise=refuses_volumes)
async def files_of_a_volume_are_had_without_a_sandbox(subject: Subject) -> None:
    """What is written from outside is read inside, and the other way round."""
    volume = await _made(subject)
    await subject.provider.create_volume(volume, None)  # once more is the same
    files = await subject.provider.open_volume(volume)
    await files.make_dir("/in", Attributes())
    written = await files.write("/in/a", _content(b"from ", b"outside"), Attributes(mode=0o640))
    same((written.size, written.mode), (12, 0o640), "what was written")
    async with subject.sandbox(volumes=_mounted(volume)) as box:
        same(await box.say(f"cat {_PATH}/in/a"), "from outside", "what a sandbox reads of it")
        await box.say(f"echo inside > {_PATH}/b; ln -s /etc/passwd {_PATH}/link")
        found = await files.list("/", depth=2)
        kinds = [(entry.path, entry.kind) for entry in found]
        expected = [
            ("/b", EntryKind.FILE),
            ("/in", EntryKind.DIRECTORY),
            ("/in/a", EntryKind.FILE),
            ("/link", EntryKind.SYMLINK),
        ]
        same(kinds, expected, "what is listed")
        length, pieces = await files.read("/b")
        same(
            (length, b"".join([piece async for piece in pieces])), (7, b"inside\n"), "what is read"
        )
    await files.remove("/in")
    await refused(files.stat("/in/a"), NotFound, "stat() of what was removed")
    await refused(subject.provider.open_volume(_new()), NotFound, "open_volume() of none")


async def _content(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def refuses_a_size(subject: Subject) -> None:
    await refused(subject.provider.create_volume(_new(), 16), Unsupported, "a size")


@check(
    when=lambda capabilities: capabilities.volumes and capabilities.disk_limit,
    otherwise=refuses_a_size,
)
async def a_volume_with_a_size_holds_no_more(subject: Subject) -> None:
    """Writing beyond it fails, and what was there is still there."""
    volume = await _made(subject, 32)
    async with subject.sandbox(volumes=_mounted(volume)) as box:
        await box.say(f"echo kept > {_PATH}/kept")
        tried = await box.sh(f"head -c 67108864 /dev/urandom > {_PATH}/large && sync -f {_PATH}")
        same(tried.exit_code == 0, False, "whether 64 MiB fit in a volume of 32")
        same(await box.say(f"cat {_PATH}/kept"), "kept", "what was there before")
