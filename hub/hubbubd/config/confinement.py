"""What a server that was added over the API may do. The operator's files are trusted, callers of the API are not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import httpx2

from hubbubd.config.allowances import problems
from hubbubd.config.commands import Commands
from hubbubd.config.hosts import Hosts
from hubbubd.config.hub import HubSettings
from hubbubd.config.references import VariableNotSet, named, resolve
from hubbubd.config.server import ServerConfig
from hubbubd.errors import ConfigError, HubError, InvalidArgument, PermissionDenied


@dataclass(frozen=True, slots=True)
class Confinement:
    """The settings `allow_commands`, `allow_hosts`, `deny_hosts` and `allow_variables`, and the hub's own bounds."""

    commands: Commands
    hosts: Hosts
    variables: frozenset[str]
    hub: HubSettings

    @classmethod
    def of(cls, settings: HubSettings, environ: Mapping[str, str]) -> Self:
        """Looks for the commands, now and never again."""
        commands = Commands(settings.allow_commands, environ.get("PATH", ""))
        hosts = Hosts(settings.allow_hosts, settings.deny_hosts)
        return cls(commands, hosts, frozenset(settings.allow_variables), settings)

    def check(self, config: ServerConfig, environ: Mapping[str, str]) -> None:
        """Whether a server may be added. One whose references cannot be resolved now is checked when they can.

        Raises PermissionDenied (COMMAND_NOT_ALLOWED, HOST_NOT_ALLOWED, VARIABLE_NOT_ALLOWED) and InvalidArgument.
        """
        if wrong := tuple((f"spec.{field}", problem) for field, problem in problems(config, self.hub)):
            raise InvalidArgument.fields(wrong)
        try:
            self.resolve(config, environ)
        except VariableNotSet:
            return
        except ConfigError as exc:
            raise InvalidArgument.field(exc.key.replace(f"servers.{config.name}", "spec", 1), exc.problem) from None

    def refusal(self, config: ServerConfig, environ: Mapping[str, str]) -> str:
        """The reason why a server may not be connected; empty when it may."""
        try:
            self.check(config, environ)
        except HubError as exc:
            return exc.reason
        return ""

    def resolve(self, config: ServerConfig, environ: Mapping[str, str]) -> ServerConfig:
        """The configuration to connect with, its command an absolute path.

        Raises PermissionDenied as `check` does, VariableNotSet and ConfigError.
        """
        if config.lacks_secrets:
            raise ConfigError(f"servers.{config.name}", "its secrets are lost; update it with them")
        for key, reference in named(config):
            if reference not in self.variables:
                raise PermissionDenied(
                    f"{key}: {reference} is not in allow_variables of the hub's configuration",
                    reason="VARIABLE_NOT_ALLOWED",
                    metadata={"variable": reference},
                )
        resolved = resolve(config, environ)
        for field, problem in problems(resolved, self.hub):
            raise ConfigError(f"servers.{config.name}.{field}", problem)
        if resolved.url is not None:
            self.hosts.check_host(httpx2.URL(resolved.url).host)
            return resolved
        return resolved.model_copy(update={"command": self.commands.admit(resolved)})
