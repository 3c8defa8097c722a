"""One typed settings tree: `paddock.toml`, then PADDOCK_* variables; unknown keys are errors."""

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from paddock.adapters.egress.config import EgressConfig
from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.local.config import LocalConfig
from paddock.adapters.store.config import StoreConfig
from paddock.domain.errors import InvalidRequest
from paddock.domain.quota import QuotaConfig
from paddock.interfaces.e2b.config import E2bConfig
from paddock.services.file_limits import FilesConfig
from paddock.services.task_config import TasksConfig

T = TypeVar("T")

PREFIX = "PADDOCK_"
NOT_SETTINGS = frozenset(
    {
        "PADDOCK_CONFIG",
        "PADDOCK_MASTER_KEY",
        "PADDOCK_SANDBOX_ID",
        "PADDOCK_SUDO",
        "PADDOCK_TOKEN",
        "PADDOCK_URL",
    }
)
"""Variables that mean something else: the file to read, what `make` may do, where a command is,
which server a client means and what lets it in."""
NOT_SETTINGS_PREFIX = "PADDOCK_TEST_"
PLACES = (Path("paddock.toml"), Path("/etc/paddock/paddock.toml"))


@dataclass(frozen=True, slots=True)
class AgentsConfig:
    """Settings under `[agents]`."""

    dir: Path | None = None
    """Where agents are installed for all sandboxes of this host; left out, it is `agents` in the
    server's data directory."""
    own: tuple[str, ...] = ()
    """Agents that are not Paddock's, as `package.module:Class` of a Python package beside it."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings under `[log]`."""

    level: Literal["debug", "info", "warning", "error"] = "warning"


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """Settings under `[telemetry]`."""

    otlp_endpoint: str = ""
    """A collector that traces are sent to by OTLP over HTTP, such as http://localhost:4318; needs
    `paddock-sandbox[otel]`. Empty sends none."""
    sample_ratio: float = 1.0
    """The part of the traces begun here that is sent; who sends `traceparent` decides theirs."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings under `[server]`."""

    host: str = "127.0.0.1"
    port: int = 7070
    data_dir: Path = Path("/var/lib/paddock")
    """Database, admin token, keys. `paddock up --data-dir` sets this and the local provider's."""
    database: str = ""
    """A postgresql:// URL; empty keeps everything in SQLite in the data directory."""
    providers: tuple[str, ...] = ()
    """Providers to open beside the one in use."""
    fallback_provider: str = ""
    """A provider that sandboxes are made on while the one in use is away, where nobody has named
    one; its isolation may be weaker, so it is empty, and nothing is made elsewhere."""
    outage_s: float = 60.0
    """With a fallback: how long a provider that did not answer is not asked again."""
    preview_domain: str = "preview.localhost"
    """Previews are at {port}-{sandbox}.{preview_domain}, on the same port as the API."""
    public_url: str = ""
    """How the outside reaches the server where that differs: `https://paddock.example:8443`."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks (CIDR) whose forwarding headers are believed."""
    tls_port: int = 443
    """Where the same is served by TLS, if there is a certificate; 0 takes a free port."""
    tls_certificate: Path | None = None
    """The certificate with its chain, in PEM. Previews need one for `*.{preview_domain}`."""
    tls_key: Path | None = None
    """Its private key; left out when it is in the same file."""
    ssh_host: str = "127.0.0.1"
    ssh_port: int = 7022
    """Of the SSH gateway; 0 turns it off."""
    ssh_public: str = ""
    """How the outside reaches the gateway where that differs: `paddock.example:22`."""
    requests_per_second: float = 200.0
    """Of one token, on average."""
    requests_burst: float = 1000.0
    events_per_second: float = 500.0
    """That agents and programs may tell of in one sandbox, on average."""
    events_burst: float = 5000.0
    ask_timeout_s: float = 300.0
    """How long a command waits for an approval that a policy wants; 0 refuses it at once."""
    reap_every_s: float = 5.0
    """How often idle sandboxes are looked for."""

    @property
    def ports(self) -> frozenset[int]:
        """Those that are its own: no sandbox reaches them, whatever its rules."""
        return frozenset({self.port, self.ssh_port}) - {0}


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set."""

    provider: str = "auto"
    """Which provider is used where none is named; auto takes the best that works here."""
    update_check_url: str = ""
    """A package index that is asked once a day for a newer release; `environment` takes the one
    of pip or uv. Empty asks nobody."""
    local: LocalConfig = field(default_factory=LocalConfig)
    docker: DockerConfig = field(default_factory=DockerConfig)
    egress: EgressConfig = field(default_factory=EgressConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    files: FilesConfig = field(default_factory=FilesConfig)
    e2b: E2bConfig = field(default_factory=E2bConfig)
    agents: AgentsConfig = field(default_factory=AgentsConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    log: LogConfig = field(default_factory=LogConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

    @property
    def agents_dir(self) -> Path:
        return self.agents.dir or self.server.data_dir / "agents"


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as it was found, and where: errors name the place."""

    value: Any
    place: str
    base: Path
    """What a relative path is relative to."""
    text: bool = False
    """From the environment, where everything is text."""


def load(config: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this process. Raises InvalidRequest that names place, key and remedy."""
    given: dict[str, _Given] = {}
    if (path := find_file(config, environ)) is not None:
        given |= _from_file(path)
    given |= _from_environment(environ)
    return _build(Settings, given, "")


def find_file(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The first of: the one asked for, PADDOCK_CONFIG, the working directory's, the system's."""
    named = environ.get("PADDOCK_CONFIG")
    asked = config or (Path(named) if named else None)
    if asked is None:
        return next((place for place in PLACES if place.is_file()), None)
    if not asked.is_file():
        origin = "--config" if config else "PADDOCK_CONFIG"
        kind = "is not a file" if asked.exists() else "does not exist"
        _refuse(f"{origin}: {asked} {kind}", f"name a file, or leave {origin} out")
    return asked


def variable(key: str) -> str:
    """`local.data_dir` as a name in the environment."""
    return PREFIX + key.replace(".", "__").upper()


def keys(kind: type = Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that can be set, with its type."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        hint = hints[each.name]
        if is_dataclass(hint):
            yield from keys(hint, f"{prefix}{each.name}.")  # type: ignore[arg-type]
        else:
            yield f"{prefix}{each.name}", hint


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        _refuse(f"{path} cannot be read: {error.strerror}", "let this user read it")
    except UnicodeDecodeError as error:
        _refuse(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}", "save it so")
    except tomllib.TOMLDecodeError as error:
        _refuse(f"{path} is not TOML: {error}", "correct the file there")
    known, tables = dict(keys()), _tables()
    base = path.absolute().parent
    given: dict[str, _Given] = {}
    for key, value in _flatten(content, "", tables):
        if key in tables:
            _refuse(
                f"{path}: {key} is {_shown(value)}, but it is a table of settings",
                f"begin a section with [{key}]",
            )
        if key not in known:
            _refuse(f"{path}: there is no setting {key}{_meant(key, [*known, *tables])}", _has(key))
        given[key] = _Given(value, f"{path}: {key}", base)
    return given


def _has(key: str) -> str:
    """What there is where an unknown key was looked for."""
    table = key.rpartition(".")[0]
    table = table if table in _tables() else ""
    names = {name.removeprefix(f"{table}.") for name, _ in keys() if name.startswith(table)}
    here = sorted({name.partition(".")[0] for name in names})
    return f"{f'[{table}]' if table else 'the file'} may have: {', '.join(here)}"


def _tables() -> set[str]:
    return {key.rpartition(".")[0] for key, _ in keys()} - {""}


def _flatten(
    content: Mapping[str, Any], prefix: str, tables: set[str]
) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key in tables:
            yield from _flatten(value, f"{key}.", tables)
        else:
            yield key, value


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    known = {variable(key): key for key, _ in keys()}
    given = {}
    for name, text in environ.items():
        foreign = name in NOT_SETTINGS or name.startswith(NOT_SETTINGS_PREFIX)
        if not name.startswith(PREFIX) or foreign:
            continue
        if name not in known:
            meant = _meant(name, [*known, *NOT_SETTINGS])
            _refuse(f"the variable {name} is no setting{meant}", f"correct it, or `unset {name}`")
        given[known[name]] = _Given(text, f"the variable {name}", Path.cwd(), text=True)
    return given


def _build(kind: type[T], given: Mapping[str, _Given], prefix: str) -> T:
    """The dataclass, table by table; what is not given keeps its default."""
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for each in fields(kind):  # type: ignore[arg-type]
        key, hint = f"{prefix}{each.name}", hints[each.name]
        if is_dataclass(hint):
            values[each.name] = _build(hint, given, f"{key}.")  # type: ignore[arg-type]
        elif key in given:
            values[each.name] = _convert(given[key], hint)
    return kind(**values)


def _read_text(value: str, hint: Any) -> Any:
    """Tables are JSON; lists are, too, or words between commas."""
    if _is_table(hint):
        return json.loads(value)
    if get_origin(hint) is not tuple:
        return value
    is_json = value.lstrip().startswith("[")
    return json.loads(value) if is_json else [each.strip() for each in value.split(",") if each]


def _convert(given: _Given, hint: Any) -> Any:
    def path(_: type, value: Any) -> Path:
        if not isinstance(value, str) or not value:
            raise ValueError
        return given.base / Path(value).expanduser()

    try:
        value = _read_text(given.value, hint) if given.text else given.value
        return msgspec.convert(value, hint, strict=not given.text, dec_hook=path)
    except (ValueError, TypeError, RuntimeError) as error:
        choices = [str(choice) for choice in get_args(hint) if get_origin(hint) is Literal]
        meant = _meant(str(given.value), choices)
        raise InvalidRequest(
            f"{given.place} is {_shown(given.value)}, which is not {_expected(hint)}{meant}",
            remediation=f"set it to {_expected(hint)}, or leave it out for the default",
        ) from error


def _is_table(hint: Any) -> bool:
    return get_origin(hint) is dict


def _expected(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(hint))
    if _is_table(hint):
        name, value = (_expected(part) for part in get_args(hint))
        return f"a table from {name} to {value} (in a variable: JSON)"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    words[Path] = "a path"
    known = [words[part] for part in (get_args(hint) or (hint,)) if part in words]
    return " or ".join(known) or str(hint)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _meant(found: str, known: list[str]) -> str:
    close = difflib.get_close_matches(found.lower(), [name.lower() for name in known], n=1)
    names = [name for name in known if close and name.lower() == close[0]]
    return f"; did you mean {names[0]}?" if names else ""


def _refuse(message: str, remediation: str) -> NoReturn:
    raise InvalidRequest(message, remediation=remediation)
