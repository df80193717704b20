"""The sandbox policy for servers added over the API: files of the operator are trusted, callers of the API are not.

The RPC layer calls `check` to answer the caller; the connector calls `resolve` before each start or connection, which
is the check that counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from hubbubd.config.hub import HubSettings
from hubbubd.config.policy.advice import render_allowing_setting
from hubbubd.config.policy.allowances import find_problems
from hubbubd.config.policy.commands import CommandRules
from hubbubd.config.policy.hosts import HostRules
from hubbubd.config.servers.references import VariableNotSet, list_references, resolve
from hubbubd.config.servers.server import ServerConfig
from hubbubd.errors import ConfigError, HubError, InvalidServerConfig, PermissionDenied


@dataclass(frozen=True, slots=True)
class Confinement:
    """The settings `allow_commands`, `allow_hosts`, `deny_hosts`, `allow_variables`, and the hub's own limits."""

    commands: CommandRules
    hosts: HostRules
    variables: frozenset[str]
    hub: HubSettings
    trusted: bool = False
    """Whether the owner has added the server: then any command and reference is allowed, and a private address."""

    @classmethod
    def from_settings(cls, settings: HubSettings, environ: Mapping[str, str]) -> Self:
        """Return the policy of these settings; commands are looked up on PATH now and never again."""
        commands = CommandRules(settings.allow_commands, environ.get("PATH", ""))
        hosts = HostRules(settings.allow_hosts, settings.deny_hosts)
        return cls(commands, hosts, frozenset(settings.allow_variables), settings)

    def with_trust(self, trusted: bool) -> "Confinement":
        """Return the policy for a server by the owner (`trusted`) or of another caller; `trust_local` can forbid it."""
        return replace(self, trusted=trusted and self.hub.trust_local)

    def find_host_rules(self, resolved: ServerConfig) -> HostRules:
        """Return the rules for hosts of a server: a trusted server's own host may be private."""
        if not self.trusted or resolved.url is None:
            return self.hosts
        return self.hosts.with_trusted_host(_parse_host(resolved.url))

    def check(self, config: ServerConfig, environ: Mapping[str, str]) -> None:
        """Check whether a server may be added.

        A server with unset variables passes: `resolve` checks it again before each connection.

        Raises PermissionDenied (COMMAND_NOT_ALLOWED, HOST_NOT_ALLOWED, VARIABLE_NOT_ALLOWED) and InvalidServerConfig.
        If there is a setting that would allow the server, it is in the metadata `toml` of the denial.
        """
        if problems := tuple(find_problems(config, self.hub)):
            raise InvalidServerConfig.fields(problems)
        try:
            self.resolve(config, environ)
        except VariableNotSet:
            return
        except PermissionDenied as exc:
            if advice := render_allowing_setting(exc, config, self.hub):
                exc.metadata["toml"] = advice
            raise
        except ConfigError as exc:
            raise InvalidServerConfig.field(exc.key.removeprefix(f"servers.{config.name}")[1:], exc.problem) from None

    def find_refusal(self, config: ServerConfig, environ: Mapping[str, str]) -> str:
        """Return the reason why `check` refuses a server; empty if it does not."""
        try:
            self.check(config, environ)
        except HubError as exc:
            return exc.reason
        return ""

    def resolve(self, config: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
        """Return the configuration to connect with: references replaced, the command an absolute path.

        Raises PermissionDenied (COMMAND_NOT_ALLOWED, HOST_NOT_ALLOWED, VARIABLE_NOT_ALLOWED), VariableNotSet and
        ConfigError.
        """
        if config.lacks_secrets:
            raise ConfigError(f"servers.{config.name}", "its secrets are lost; update it with them")
        for key, reference in list_references(config):
            if not self.trusted and reference not in self.variables:
                raise PermissionDenied(
                    f"{key}: {reference} is not in allow_variables of the hub's configuration",
                    reason="VARIABLE_NOT_ALLOWED",
                    metadata={"variable": reference},
                )
        resolved = resolve(config, environ)
        for field, problem in find_problems(resolved, self.hub):
            raise ConfigError(f"servers.{config.name}.{field}", problem)
        if resolved.url is not None:
            self.find_host_rules(resolved).check_host(_parse_host(resolved.url))
            return resolved
        if self.trusted:
            return resolved
        return resolved.model_copy(update={"command": self.commands.find_allowed_program(resolved)})


def _parse_host(url: str) -> str:
    """Return the host of a URL, in its normal form."""
    import httpx2  # lazy: as in `server.py`

    return httpx2.URL(url).host
