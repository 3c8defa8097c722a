"""Teams, roles, scopes and tokens."""

from dataclasses import replace

import pytest

from paddock.domain import team as access
from paddock.domain.errors import Forbidden, InvalidRequest, Unauthenticated
from paddock.domain.team import GRANTS, OPERATOR_SCOPES, Role, Scope, Team, Token

OPERATORS = Team("tem_1", "default", 0.0, operator=True)
OTHERS = Team("tem_2", "others", 0.0)


def issued(team: Team = OTHERS, role: Role = Role.MEMBER, **more: object) -> tuple[Token, str, str]:
    token, presented = access.issue(team, "laptop", role, 100.0, **more)  # type: ignore[arg-type]
    identifier, secret = access.split_secret(presented)
    assert identifier == token.id
    return token, presented, secret


def test_the_secret_that_was_shown_authenticates_and_is_not_kept():
    token, presented, secret = issued()
    principal = access.authenticate(token, OTHERS, secret, 101.0)
    assert (principal.team_id, principal.actor, principal.role) == ("tem_2", token.id, Role.MEMBER)
    assert secret not in repr(token)
    assert presented.startswith("tok_")


def test_who_is_unknown_and_who_is_wrong_are_told_the_same():
    token, _, secret = issued()
    answers = set()
    for found, given in ((None, secret), (token, secret[:-1] + "_"), (token, "")):
        with pytest.raises(Unauthenticated) as refused:
            access.authenticate(found, OTHERS, given, 101.0)
        answers.add(str(refused.value))
    assert len(answers) == 1


def test_a_token_ends_by_revocation_and_by_time():
    token, _, secret = issued(lifetime_s=10.0)
    access.authenticate(token, OTHERS, secret, 109.9)
    with pytest.raises(Unauthenticated, match="has expired"):
        access.authenticate(token, OTHERS, secret, 110.0)
    with pytest.raises(Unauthenticated, match="was revoked"):
        access.authenticate(replace(token, revoked_at=105.0), OTHERS, secret, 106.0)


@pytest.mark.parametrize("presented", ["", "x", "tok_1.x", "sbx_" + "0" * 26 + ".x", "tok_"])
def test_what_is_no_token_is_said_to_be_none(presented):
    with pytest.raises(Unauthenticated, match="is not a token"):
        access.split_secret(presented)


def test_each_role_has_all_that_the_lower_one_has():
    assert GRANTS[Role.VIEWER] < GRANTS[Role.MEMBER] < GRANTS[Role.ADMIN] == frozenset(Scope)


def test_a_viewer_writes_nothing():
    own = {Scope.TOKENS_OWN}  # keys of their own, which can do no more than they
    assert not [scope for scope in GRANTS[Role.VIEWER] - own if not scope.endswith(":read")]


def test_only_the_operating_team_touches_the_installation():
    token, _, secret = issued(OTHERS, Role.ADMIN)
    principal = access.authenticate(token, OTHERS, secret, 101.0)
    assert not principal.scopes & OPERATOR_SCOPES
    with pytest.raises(Forbidden, match="settings:write"):
        principal.require(Scope.SETTINGS_WRITE)
    token, _, secret = issued(OPERATORS, Role.ADMIN)
    access.authenticate(token, OPERATORS, secret, 101.0).require(Scope.SETTINGS_WRITE)


def test_scopes_narrow_a_role_and_never_widen_it():
    narrow = frozenset({Scope.EVENTS_READ})
    token, _, secret = issued(scopes=narrow)
    principal = access.authenticate(token, OTHERS, secret, 101.0)
    assert principal.scopes == narrow
    with pytest.raises(Forbidden, match="sandboxes:write"):
        principal.require(Scope.SANDBOXES_WRITE)
    with pytest.raises(InvalidRequest, match="tokens:manage"):
        issued(scopes=frozenset({Scope.TOKENS_MANAGE}))


@pytest.mark.parametrize(
    ("name", "lifetime"), [("", None), (" ", None), ("x" * 101, None), ("ok", 0.0), ("ok", -1.0)]
)
def test_a_token_that_makes_no_sense_is_refused(name, lifetime):
    with pytest.raises(InvalidRequest):
        access.issue(OTHERS, name, Role.MEMBER, 1.0, lifetime_s=lifetime)
