"""The directory for sockets and locks goes with the last who needs it, and with nobody before."""

from pathlib import Path

from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.docker.place import Place
from paddock.domain.ids import new_ulid

CONTAINER = "c" * 64


def entered(root: Path) -> Place:
    return Place.open(DockerConfig(run_root=root), Names("test"))


def test_it_goes_with_the_last_process(tmp_path: Path) -> None:
    first, second = entered(tmp_path), entered(tmp_path)
    first.close()
    assert second.run.is_dir()
    assert second.is_alive(second.maker, 0)
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_a_guest_that_listens_in_it_keeps_it(tmp_path: Path) -> None:
    place = entered(tmp_path)
    place.socket(CONTAINER).touch()
    place.close()
    assert place.socket(CONTAINER).exists()
    again = entered(tmp_path)
    again.socket(CONTAINER).unlink()
    again.close()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_killed_does_not_keep_it(tmp_path: Path) -> None:
    place = entered(tmp_path)
    (place.run / "owners" / new_ulid()).touch()
    place.close()
    assert list(tmp_path.iterdir()) == []
