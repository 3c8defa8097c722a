"""Memory on disk: what is found is said, and none of it is taken for a promise."""

import os
from pathlib import Path

import pytest

from paddock.adapters.providers.local import checkpoint, runtime
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import GVISOR, LocalProvider
from paddock.ports.provider import Status

RUNC = '{"annotations": {"org.opencontainers.runc.checkpoint.enabled": "%s"}}'


def program(directory: Path, name: str, script: str) -> str:
    file = directory / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("name", "script", "found"),
    [
        ("crun", "echo crun version 1; echo +CAP +CRIU +YAJL", "crun built with CRIU"),
        ("crun", "echo crun version 1; echo +CAP +YAJL", "crun built without CRIU"),
        ("runc", f"echo '{RUNC % 'true'}'", "runc built with CRIU"),
        ("runc", f"echo '{RUNC % 'false'}'", "runc built without CRIU"),
        ("runc", "echo '{}'", "runc built without CRIU"),
        ("runc", "echo unknown command features; exit 1", "runc built without CRIU"),
        ("runsc", "exit 1", "runsc with a checkpoint of its own"),
    ],
)
def test_a_runtime_is_asked_what_it_was_built_with(tmp_path, name, script, found):
    chosen = runtime.Runtime(name, program(tmp_path, name, script), "1")
    assert checkpoint.support(chosen) == found


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ('[ "$1" = check ] || echo Version: 4.2.1', "criu 4.2.1 whose own check passes"),
        ("echo Version: 3.17.1; echo GitID: x; [ $1 != check ]", "criu 3.17.1 whose own check f"),
        ("exit 1", "criu of an unknown version whose own check fails"),
    ],
)
def test_criu_is_asked_for_its_version_and_its_own_check(tmp_path, need, script, found):
    if os.geteuid() != 0:
        need("root", "the check of criu means nothing to others")
    program(tmp_path, "criu", script)
    assert checkpoint.criu(f"{tmp_path}:/usr/bin").startswith(found)


def test_without_criu_that_is_said(tmp_path):
    assert checkpoint.criu(str(tmp_path)) == "no criu"


@pytest.mark.proves("P4")
@pytest.mark.parametrize("name", runtime.PREFERENCE)
def test_whatever_is_found_it_stays_off_and_nothing_to_install_is_advised(name):
    config = LocalConfig(runtime=name)
    finding = checkpoint.finding(config)
    assert (finding.name, finding.status) == ("checkpoint to disk", Status.DEGRADED)
    assert finding.found.startswith("off: ")
    assert "criu" in finding.found
    assert "install" not in finding.fix
    reason = finding.found.removeprefix("off: ").partition(";")[0]
    if name in runtime.installed():
        assert reason in checkpoint.refusal(config).message
    assert not (LocalProvider.CAPABILITIES.checkpoint or GVISOR.checkpoint)
