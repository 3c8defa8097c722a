"""Files: what is written is what is read, whatever it is called."""

from paddock.domain.errors import NotFound
from paddock.testing.conformance.check import check
from paddock.testing.conformance.expect import expect, refused, same
from paddock.testing.conformance.subject import Subject

CONTENTS = {
    "text": "größer ☃\n".encode(),
    "binary": bytes(range(256)) * 64,
    "empty": b"",
    "large": bytes(range(251)) * 20_000,
}
ODD_NAMES = (
    "two words",
    "quote'\"\\",
    "größer ☃",
    "-rf",
    ".hidden",
    "semi;colon & more",
    "per%20cent%2e",
    "star*?[a]",
    "new\nline",
    "n" * 200,
)


@check(proves=("P1",))
async def a_file_is_read_as_it_was_written(subject: Subject) -> None:
    """Text, binary, empty and large contents come back unchanged, and commands see them too."""
    async with subject.sandbox() as box:
        home = await box.say("pwd -P")
        for name, content in CONTENTS.items():
            path = f"{home}/files/{name}"
            await box.guest.files.write(path, content)
            expect(await box.guest.files.read(path) == content, f"{name} came back changed")
            size = await box.say('wc -c < "$1"', path)
            same(int(size), len(content), f"the size of {name} for a command")
        await box.guest.files.write(f"{home}/files/large", b"short")
        same(await box.guest.files.read(f"{home}/files/large"), b"short", "an overwritten file")
        await box.say("printf 'by a command' > made")
        same(await box.guest.files.read(f"{home}/made"), b"by a command", "a command's file")


@check(proves=("P1",))
async def a_file_may_have_an_odd_name(subject: Subject) -> None:
    """Names with spaces, quotes, newlines and other signs are written, listed, read and removed."""
    async with subject.sandbox() as box:
        home = await box.say("pwd -P")
        for name in ODD_NAMES:
            await box.guest.files.write(f"{home}/odd/{name}", name.encode())
        found = {entry.name for entry in await box.guest.files.list(f"{home}/odd")}
        same(found, set(ODD_NAMES), "the names in the directory")
        for name in ODD_NAMES:
            same(await box.guest.files.read(f"{home}/odd/{name}"), name.encode(), f"file {name!r}")
            await box.guest.files.remove(f"{home}/odd/{name}")
        same(await box.guest.files.list(f"{home}/odd"), [], "the directory after removing all")


@check(proves=("P1",))
async def a_removed_file_is_gone(subject: Subject) -> None:
    """remove() takes files and whole directories away; what is not there is NotFound."""
    async with subject.sandbox() as box:
        home = await box.say("pwd -P")
        files = box.guest.files
        await files.write(f"{home}/tree/deep/leaf", b"x")
        await files.remove(f"{home}/tree/deep/leaf")
        await refused(files.read(f"{home}/tree/deep/leaf"), NotFound, "read() of a removed file")
        await files.write(f"{home}/tree/deep/leaf", b"x")
        await files.remove(f"{home}/tree")
        await refused(files.list(f"{home}/tree"), NotFound, "list() of a removed directory")
        same(await box.say("test -e tree || echo gone"), "gone", "the directory for a command")


@check(proves=("P1",))
async def each_sandbox_has_a_home_of_its_own(subject: Subject) -> None:
    """What one sandbox keeps in its home is not in another's."""
    async with subject.sandbox() as one, subject.sandbox() as other:
        await one.say("echo mine > mine")
        same(await other.say("cat mine 2>/dev/null || echo nothing"), "nothing", "the other's home")
        await other.say("echo theirs > mine")
        same(await one.say("cat mine"), "mine", "the first one's file")
