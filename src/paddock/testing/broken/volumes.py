"""Providers whose volumes are shared with nobody, kept to nothing, or had unasked."""

from pathlib import Path

from paddock.ports.provider import SandboxSpec
from paddock.ports.volumes import VolumeFiles
from paddock.testing.broken.defect import Defect, claiming
from paddock.testing.records import Record
from paddock.testing.sharing import PlainFiles
from paddock.testing.simulated import SimulatedProvider

SHARED = "sandboxes_share_a_volume_that_outlives_them"
APART = "a_volume_is_no_part_of_a_disk"
FILES = "files_of_a_volume_are_had_without_a_sandbox"
SIZE = "a_volume_with_a_size_holds_no_more"


class EachItsOwn(SimulatedProvider):
    """Gives every sandbox an empty directory."""

    def _mounting(self, record: Record) -> tuple[str, ...]:
        for mount in record.volumes:
            (self._place / "shared" / f"{mount.volume}-{record.id}").mkdir(exist_ok=True)
        words = super()._mounting(record)
        names = [mount.volume for mount in record.volumes]
        return tuple(
            f"{word}-{record.id}" if word.rpartition("/")[2] in names else word for word in words
        )


class AlwaysWritable(SimulatedProvider):
    """Takes no notice of what is to be read only."""

    def _mounting(self, record: Record) -> tuple[str, ...]:
        return tuple("rw" if word == "ro" else word for word in super()._mounting(record))


class NotInCopies(SimulatedProvider):
    """Mounts volumes in what is made of a template alone."""

    def _lay_out(self, record: Record, spec: SandboxSpec, source: str) -> None:
        super()._lay_out(record, spec, source)
        if spec.snapshot is not None or source:
            (self._records.home(record.id) / "copy").touch()

    def _mounting(self, record: Record) -> tuple[str, ...]:
        is_copy = (self._records.home(record.id) / "copy").exists()
        return () if is_copy else super()._mounting(record)


class OpensWhatIsNot(SimulatedProvider):
    """Has files of any volume, also of one that there is not."""

    async def open_volume(self, volume: str) -> VolumeFiles:
        return PlainFiles(self._volume(volume))


class KeepsToNoSize(SimulatedProvider):
    """Takes a size, and that is all."""

    async def create_volume(self, volume: str, size_mib: int | None) -> None:
        await super().create_volume(volume, None)


def _limited(place: Path) -> SimulatedProvider:
    made = claiming(KeepsToNoSize, disk_limit=True)(place)
    assert isinstance(made, SimulatedProvider)
    return made


DEFECTS = (
    Defect("shares nothing", EachItsOwn, (SHARED,)),
    Defect("lets everyone write", AlwaysWritable, (SHARED,)),
    Defect("mounts nothing in copies", NotInCopies, (APART,)),
    Defect("opens volumes that there are not", OpensWhatIsNot, (FILES,)),
    Defect("claims to keep volumes to a size", _limited, (SIZE,)),
    Defect("takes a size and forgets it", KeepsToNoSize, (SIZE,)),
    Defect(
        "keeps volumes that it does not claim",
        claiming(SimulatedProvider, volumes=False),
        (SHARED, APART, FILES),
    ),
)
