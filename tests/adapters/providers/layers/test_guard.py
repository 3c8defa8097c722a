"""What cannot work is refused before the provider is touched."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.adapters.providers.layers import Guard, Layered, standard_layers
from paddock.adapters.providers.layers.guard import FLAGS
from paddock.adapters.providers.layers.rules import check_env, check_key, check_labels
from paddock.domain.egress import OPEN
from paddock.domain.errors import InvalidRequest, LimitExceeded, NotFound, PaddockError, Unsupported
from paddock.domain.snapshot import SnapshotRef
from paddock.ports.provider import PauseKind, Ref, SandboxSpec

from .scripted import ABLE, CALLS, REF, SHOT, SNAPSHOT, ScriptedProvider, use

SPEC = SandboxSpec(template="base")


@pytest.fixture
def guarded(provider, clock):
    return Layered(provider, Guard(provider, clock))


async def refused(
    guarded: Layered, provider: ScriptedProvider, error: type[PaddockError], *call: Any
) -> str:
    with pytest.raises(error) as caught:
        await use(guarded, *call)
    assert provider.calls == [], "the provider was touched"
    assert caught.value.remediation, "nobody is told what to do"
    return caught.value.message


@pytest.mark.proves("P4")
@pytest.mark.parametrize("operation", FLAGS)
async def test_a_flag_that_is_off_refuses_and_names_provider_operation_and_flag(
    unable, clock, operation
):
    message = await refused(
        Layered(unable, Guard(unable, clock)), unable, Unsupported, str(operation)
    )
    assert "provider scripted" in message
    assert f"support {operation}:" in message
    assert f"`{FLAGS[operation]}` is off" in message


@pytest.mark.proves("P4")
@pytest.mark.parametrize("operation", CALLS)
async def test_what_the_capabilities_allow_is_let_through(guarded, provider, operation):
    await use(guarded, operation)
    assert provider.calls == [operation]


@pytest.mark.proves("P4")
@pytest.mark.parametrize("operation", sorted(set(CALLS) - set(FLAGS)))
async def test_what_is_mandatory_is_never_refused_for_a_capability(unable, clock, operation):
    await use(Layered(unable, Guard(unable, clock)), operation)
    assert unable.calls == [operation]


@pytest.mark.proves("P4")
@pytest.mark.parametrize(
    ("spec", "flag"),
    [(SandboxSpec(snapshot=SNAPSHOT), "snapshot"), (replace(SPEC, egress=OPEN), "egress")],
    ids=["snapshot", "egress"],
)
async def test_a_spec_that_needs_a_missing_capability_is_refused(unable, clock, spec, flag):
    guarded = Layered(unable, Guard(unable, clock))
    assert f"`{flag}` is off" in await refused(guarded, unable, Unsupported, "create", "k", spec)


@pytest.mark.proves("P4")
@pytest.mark.parametrize(
    ("able", "instead", "not_instead"),
    [
        (ABLE, ("the disk", "in RAM"), ()),
        (replace(ABLE, pause=PauseKind.DISK), ("the disk",), ("in RAM",)),
    ],
    ids=["pause keeps memory", "pause does not"],
)
async def test_memory_in_a_snapshot_needs_its_own_flag_and_what_works_instead_is_said(
    clock, able, instead, not_instead
):
    provider = ScriptedProvider(able)
    guarded = Layered(provider, Guard(provider, clock))
    with pytest.raises(Unsupported) as caught:
        await guarded.snapshot(REF, "k", memory=True)
    assert provider.calls == [], "the provider was touched"
    assert "snapshot with memory: its capability `checkpoint` is off" in caught.value.message
    assert all(way in caught.value.remediation for way in instead)
    assert not any(way in caught.value.remediation for way in not_instead)
    assert await guarded.snapshot(REF, "k") == SHOT


async def test_memory_is_passed_on_where_it_can_be_kept(clock):
    class Remembering(ScriptedProvider):
        async def snapshot(self, ref, key, *, memory=False, ignore=()):
            return replace(SHOT, memory=memory)

    provider = Remembering(replace(ABLE, checkpoint=True))
    layered = standard_layers(provider, clock=clock, observer=lambda *_: None)
    assert (await layered.snapshot(REF, "k", memory=True)).memory is True
    assert (await layered.snapshot(REF, "k")).memory is False


@pytest.mark.proves("P4")
async def test_rules_need_their_own_flag_and_have_to_say_where(clock):
    provider = ScriptedProvider(ABLE)
    guarded = Layered(provider, Guard(provider, clock))
    with pytest.raises(Unsupported, match="`snapshot_ignore` is off") as caught:
        await guarded.snapshot(REF, "k", ignore=("/var/cache",))
    assert caught.value.remediation == "take it with everything"
    with pytest.raises(InvalidRequest, match="does not say where"):
        await guarded.snapshot(REF, "k", ignore=("out",))
    assert provider.calls == [], "the provider was touched"


async def test_rules_are_passed_on_where_they_can_be_gone_by(clock):
    class Leaving(ScriptedProvider):
        async def snapshot(self, ref, key, *, memory=False, ignore=()):
            return replace(SHOT, ignore=ignore)

    provider = Leaving(replace(ABLE, snapshot_ignore=True))
    layered = standard_layers(provider, clock=clock, observer=lambda *_: None)
    assert (await layered.snapshot(REF, "k", ignore=("/var/cache",))).ignore == ("/var/cache",)
    assert (await layered.snapshot(REF, "k")).ignore == ()


@pytest.mark.proves("L1")
@pytest.mark.parametrize(
    "spec", [SandboxSpec(), replace(SPEC, snapshot=SNAPSHOT)], ids=["neither", "both"]
)
async def test_a_sandbox_starts_from_exactly_one_of_template_and_snapshot(guarded, provider, spec):
    await refused(guarded, provider, InvalidRequest, "create", "k", spec)


@pytest.mark.parametrize("spec", [SPEC, SandboxSpec(snapshot=SNAPSHOT)], ids=["template", "shot"])
async def test_a_fork_names_no_source_of_its_own(guarded, provider, spec):
    await refused(guarded, provider, InvalidRequest, "fork", REF, "k", spec)


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"1A": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"": "x"}},
        {"env": {"A\n": "x"}},
        {"env": {"A": "x\0y"}},
        {"labels": {"": "x"}},
        {"labels": {"a b": "x"}},
        {"labels": {"a=b": "x"}},
        {"labels": {"k" * 64: "x"}},
        {"labels": {"k": "v" * 257}},
        {"labels": {"k": "a\nb"}},
        {"ports": (0,)},
        {"ports": (65536,)},
        {"ports": (True,)},
    ],
    ids=repr,
)
async def test_a_malformed_spec_is_invalid_for_create_and_for_fork(guarded, provider, change):
    await refused(guarded, provider, InvalidRequest, "create", "k", replace(SPEC, **change))
    await refused(guarded, provider, InvalidRequest, "fork", REF, "k", SandboxSpec(**change))


async def test_the_value_of_a_bad_variable_is_not_repeated(guarded, provider):
    spec = replace(SPEC, env={"TOKEN": "hush\0"})
    assert "hush" not in await refused(guarded, provider, InvalidRequest, "create", "k", spec)


@pytest.mark.proves("P4")
@pytest.mark.parametrize(
    ("allowed", "too_many"),
    [
        ({"labels": dict.fromkeys("abcd", "x")}, {"labels": dict.fromkeys("abcde", "x")}),
        ({"ports": (1, 2, 65535)}, {"ports": (1, 2, 3, 4)}),
    ],
    ids=["labels", "ports"],
)
async def test_more_than_the_provider_holds_is_too_much(guarded, provider, allowed, too_many):
    await refused(guarded, provider, LimitExceeded, "create", "k", replace(SPEC, **too_many))
    await use(guarded, "create", "k", replace(SPEC, **allowed))


async def test_a_provider_without_maxima_takes_any_number(clock):
    roomy = ScriptedProvider(replace(ABLE, max_labels=None, max_ports=None, max_lifetime_s=None))
    spec = replace(SPEC, labels={f"l{n}": "x" for n in range(99)}, ports=tuple(range(1, 99)))
    guarded = Layered(roomy, Guard(roomy, clock))
    await use(guarded, "create", "k", spec)
    await use(guarded, "renew", REF, clock.wall() + 1e9)


@pytest.mark.parametrize("port", [0, -1, 65536])
async def test_an_endpoint_on_an_impossible_port_is_invalid(guarded, provider, port):
    await refused(guarded, provider, InvalidRequest, "endpoint", REF, port)


@pytest.mark.proves("P13")
async def test_a_renewal_stays_within_the_longest_lifetime(guarded, provider, clock):
    message = await refused(guarded, provider, LimitExceeded, "renew", REF, clock.wall() + 3601)
    assert "at most 3600 s" in message
    await refused(guarded, provider, InvalidRequest, "renew", REF, math.nan)
    await use(guarded, "renew", REF, clock.wall() + 3600)


@pytest.mark.proves("L12")
@pytest.mark.parametrize(
    "operation", [op for op, args in CALLS.items() if args and isinstance(args[0], Ref)]
)
async def test_a_reference_of_another_provider_is_not_found_even_to_destroy(
    guarded, provider, operation
):
    foreign = Ref("elsewhere", "one")
    message = await refused(guarded, provider, NotFound, operation, foreign, *CALLS[operation][1:])
    assert "elsewhere" in message


async def test_a_snapshot_of_another_provider_is_not_found(guarded, provider):
    foreign = SnapshotRef("elsewhere", "shot")
    await refused(guarded, provider, NotFound, "delete_snapshot", foreign)
    await refused(guarded, provider, NotFound, "create", "k", SandboxSpec(snapshot=foreign))


async def test_labels_to_look_for_are_checked_as_well(guarded, provider):
    await refused(guarded, provider, InvalidRequest, "find", {"a b": "x"})


@given(st.text(max_size=140))
def test_a_key_is_1_to_128_printable_ascii_characters_without_spaces(key):
    good = 1 <= len(key) <= 128 and all("!" <= char <= "~" for char in key)
    assert accepts(check_key, key) is good


@given(st.text(max_size=70), st.text(max_size=260))
def test_a_label_is_short_printable_and_can_be_written_with_an_equals_sign(key, value):
    good = (
        1 <= len(key) <= 63
        and all("!" <= char <= "~" and char != "=" for char in key)
        and len(value) <= 256
        and value.isprintable()
    )
    assert accepts(check_labels, {key: value}) is good


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True), st.text())
def test_a_variable_of_a_usable_name_takes_any_value_without_nul(name, value):
    assert accepts(check_env, {name: value}) is ("\0" not in value)


def accepts(rule: Callable[[Any], None], value: Any) -> bool:
    try:
        rule(value)
    except InvalidRequest:
        return False
    return True
