"""Volumes of a sandbox as the API shows and takes them."""

from typing import Annotated

from pydantic import Field

from paddock.domain.volume import MOST_MOUNTS, MountWish, VolumeMount
from paddock.interfaces.api.schemas.common import Shape, Text


class MountShape(Shape):
    """A volume, and where the sandbox sees it."""

    volume: Annotated[Text, Field(min_length=1, max_length=63, description="its name or its id")]
    path: Annotated[Text, Field(max_length=1024, examples=["/mnt/data"])]
    read_only: bool = False

    def read(self) -> MountWish:
        return MountWish(self.volume, self.path, self.read_only)


Mounts = Annotated[list[MountShape], Field(max_length=MOST_MOUNTS)]


def show_mounts(mounts: tuple[VolumeMount, ...]) -> list[MountShape]:
    return [
        MountShape(volume=each.name or each.volume, path=each.path, read_only=each.read_only)
        for each in mounts
    ]
