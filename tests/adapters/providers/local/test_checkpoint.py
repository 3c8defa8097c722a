"""Memory on disk: what is found is said, and only what was tried is taken for a promise."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.adapters.providers.local import checkpoint, runtime
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.providers.local.provider import LocalProvider
from paddock.domain.errors import Unsupported
from paddock.domain.ids import new_ulid
from paddock.ports.provider import Ref, Status

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
@pytest.mark.parametrize("name", ["crun", "runc"])
def test_with_a_joined_guest_it_is_off_and_nothing_to_install_is_advised(name):
    found = checkpoint.finding(LocalConfig(runtime=name))
    assert (found.name, found.status) == ("checkpoint to disk", Status.DEGRADED)
    assert found.found.startswith("off: ")
    assert "criu" in found.found
    assert "install" not in found.fix
    assert not LocalProvider.CAPABILITIES.checkpoint


@pytest.mark.slow
@pytest.mark.proves("P4")
async def test_where_the_trial_succeeds_it_is_on_and_remembered(recalling_runsc, installation):
    note = installation.data_dir / "checkpoint.json"
    assert not note.exists()
    async with installation.opened(runtime=recalling_runsc) as provider:
        assert provider.capabilities.checkpoint
        found = {each.name: each for each in (await provider.check()).findings}
        assert found["checkpoint to disk"].status is Status.OK
        assert runtime.installed()["runsc"].version in found["checkpoint to disk"].found
        assert not (installation.layout.run / "trial").exists()
    assert runtime.installed()["runsc"].version in note.read_text()
    # What it says was found with another kernel says nothing of this one.
    note.write_text(note.read_text().replace('"kernel": "', '"kernel": "0.'))
    async with installation.opened(runtime=recalling_runsc) as provider:
        assert provider.capabilities.checkpoint
    assert '"kernel": "0.' not in note.read_text()


@pytest.mark.slow
@pytest.mark.proves("P4")
@pytest.mark.parametrize("failing", ["checkpoint", "restore"])
async def test_where_the_trial_fails_it_is_off_and_says_why(runsc, installation, tmp_path, failing):
    real, trial = runtime.installed()["runsc"], tmp_path / "trial"
    script = f'''for word; do [ "$word" = {failing} ] && echo no {failing} here && exit 1; done
exec {real.program} "$@"'''
    fake = replace(real, program=program(tmp_path, "runsc", script))
    async with installation.opened() as provider:
        init = provider._life.machines.init
        found = await checkpoint.Trial(fake, provider._parts.launch, trial, init).run()
    why = f"runsc {failing}: no {failing} here"
    assert found == checkpoint.Tried(works=False, why=why)
    assert why in checkpoint.refusal(found).message
    assert f"off: {why}" in checkpoint.finding(LocalConfig(runtime=runsc), found).found
    assert not trial.exists()
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(trial) not in running.stdout


@pytest.mark.slow
async def test_what_a_killed_trial_has_left_goes_with_the_next(
    recalling_runsc, installation, tmp_path
):
    engine, place = runtime.installed()["runsc"], tmp_path / "trial"
    async with installation.opened() as provider:
        launch, init = provider._parts.launch, provider._life.machines.init
        trial = checkpoint.Trial(engine, launch, place, init)
        trial._lay_out()
        _, start = next(trial._steps())
        assert (await launch.run(start, timeout=20)).code == 0
        assert (await trial.run()).works
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(place) not in running.stdout


@pytest.mark.proves("P4")
async def test_a_provider_whose_runtime_cannot_do_it_refuses(installation):
    async with installation.opened(runtime="crun") as provider:
        assert not provider.capabilities.checkpoint
        with pytest.raises(Unsupported, match="CRIU cannot write down"):
            await provider.snapshot(Ref("local", new_ulid()), "key", memory=True)
