"""Everything that an installation has on an engine and on this host, looked at from outside."""

import json
import subprocess
from pathlib import Path

from paddock.adapters.providers.docker import records
from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.engine import Engine
from paddock.adapters.providers.docker.names import Names


async def look(host: str, installation: str, run_root: Path) -> dict[str, list[str]]:
    """By kind; kinds of which there is nothing are left out."""
    names = Names(installation)
    marks = json.dumps({"label": [f"{records.INSTALLATION}={installation}"]})
    async with Engine(EngineAddress.parse(host)) as engine:
        containers = await engine.get("containers/json", "list", all=1, filters=marks)
        images = await engine.get("images/json", "list", all=1, filters=marks)
        volumes = await engine.get("volumes", "list", filters=marks)
        networks = await engine.get("networks", "list", filters=marks)
    run = run_root / f"docker-{names.tag}"
    found = {
        "containers": [one["Names"][0] for one in containers],
        "images": [f"{one['Id']} {one['RepoTags']}" for one in images],
        "volumes": [one["Name"] for one in volumes.get("Volumes") or ()],
        "networks": [one["Name"] for one in networks],
        "sockets": [path.name for path in (run / "guests").glob("*")],
        "owners": [path.name for path in (run / "owners").glob("*")],
        "locks": [path.name for path in (run / "locks").glob("*")],
        "directories": [str(run)] if run.exists() else [],
        "rules": _rules(names.table),
    }
    return {kind: names for kind, names in found.items() if names}


def _rules(table: str) -> list[str]:
    try:
        said = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [line for line in said.stdout.splitlines() if line.endswith(f" {table}")]
