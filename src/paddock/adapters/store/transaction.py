"""Everything that can be done with one connection, in one transaction."""

from functools import cached_property

from sqlalchemy import Connection

from paddock.adapters.store.approvals import SqlApprovals
from paddock.adapters.store.audit import SqlAudit
from paddock.adapters.store.ends import SqlEnds
from paddock.adapters.store.events import SqlEvents
from paddock.adapters.store.keys import SqlKeys
from paddock.adapters.store.people import SqlPeople
from paddock.adapters.store.quotas import SqlQuotas
from paddock.adapters.store.sandboxes import SqlSandboxes
from paddock.adapters.store.secrets import SqlSecrets
from paddock.adapters.store.sessions import SqlLinks, SqlSessions
from paddock.adapters.store.snapshots import SqlSnapshots
from paddock.adapters.store.sources import SqlSources
from paddock.adapters.store.ssh import SqlSshAccesses
from paddock.adapters.store.tasks import SqlMessages, SqlOutputs, SqlSteps, SqlTasks
from paddock.adapters.store.team_images import SqlTeamImages
from paddock.adapters.store.teams import SqlTeams
from paddock.adapters.store.tokens import SqlTokens
from paddock.adapters.store.values import SqlValues
from paddock.adapters.store.volumes import SqlVolumes


class SqlTransaction:
    """The port's `Transaction`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @cached_property
    def events(self) -> SqlEvents:
        return SqlEvents(self._connection)

    @cached_property
    def teams(self) -> SqlTeams:
        return SqlTeams(self._connection)

    @cached_property
    def tokens(self) -> SqlTokens:
        return SqlTokens(self._connection)

    @cached_property
    def people(self) -> SqlPeople:
        return SqlPeople(self._connection)

    @cached_property
    def links(self) -> SqlLinks:
        return SqlLinks(self._connection)

    @cached_property
    def sessions(self) -> SqlSessions:
        return SqlSessions(self._connection)

    @cached_property
    def sandboxes(self) -> SqlSandboxes:
        return SqlSandboxes(self._connection)

    @cached_property
    def snapshots(self) -> SqlSnapshots:
        return SqlSnapshots(self._connection)

    @cached_property
    def volumes(self) -> SqlVolumes:
        return SqlVolumes(self._connection)

    @cached_property
    def sources(self) -> SqlSources:
        return SqlSources(self._connection)

    @cached_property
    def ends(self) -> SqlEnds:
        return SqlEnds(self._connection)

    @cached_property
    def audit(self) -> SqlAudit:
        return SqlAudit(self._connection)

    @cached_property
    def keys(self) -> SqlKeys:
        return SqlKeys(self._connection)

    @cached_property
    def secrets(self) -> SqlSecrets:
        return SqlSecrets(self._connection)

    @cached_property
    def ssh(self) -> SqlSshAccesses:
        return SqlSshAccesses(self._connection)

    @cached_property
    def approvals(self) -> SqlApprovals:
        return SqlApprovals(self._connection)

    @cached_property
    def tasks(self) -> SqlTasks:
        return SqlTasks(self._connection)

    @cached_property
    def steps(self) -> SqlSteps:
        return SqlSteps(self._connection)

    @cached_property
    def messages(self) -> SqlMessages:
        return SqlMessages(self._connection)

    @cached_property
    def outputs(self) -> SqlOutputs:
        return SqlOutputs(self._connection)

    @cached_property
    def values(self) -> SqlValues:
        return SqlValues(self._connection)

    @cached_property
    def team_images(self) -> SqlTeamImages:
        return SqlTeamImages(self._connection)

    @cached_property
    def quotas(self) -> SqlQuotas:
        return SqlQuotas(self._connection)
