"""Settings of a fleet, several hubs over one database: `[fleet]`, or HUBBUBD_FLEET__*."""

import socket
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hubbubd.config.sections.network import Listen, Reached
from hubbubd.config.sections.tls import TlsFiles, read_certificate_names
from hubbubd.errors import ConfigError

FLEET: Final = "fleet"
"""The setting that has the fleet."""

MEMBER_URI: Final = "hubbub:member:"
"""The prefix of the URI in a member's certificate; the member's name follows."""

MemberName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
"""The name of a member: the form of a host name, in lower case."""

ExpandedPath = Annotated[Path, AfterValidator(Path.expanduser)]


class FleetSettings(BaseModel):
    """This hub as a member of a fleet. `*_s` are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: MemberName = Field(default_factory=lambda: socket.gethostname().lower(), validate_default=True)
    """The member's name, of which the fleet has one; by default the host's."""

    listen: Listen = "127.0.0.1:7879"
    """Where other members reach this one: HOST:PORT; port 0 picks a free one. Never for clients."""

    reached_at: Reached | None = None
    """The HOST:PORT at which other members reach `listen`, where that differs."""

    address: Reached | None = None
    """The HOST:PORT at which clients reach this member's API; by default where it listens."""

    ca: ExpandedPath
    """PEM certificates of the authorities whose certificates members have."""

    cert: ExpandedPath
    """This member's certificate, PEM, with the URI name hubbub:member:NAME and the DNS name NAME."""

    key: ExpandedPath
    """The key of the certificate, PEM."""

    vault_key_file: ExpandedPath | None = None
    """A file, mode 0600, with the keys of the vault: base64 lines of 32 bytes. The first seals, all open."""

    lease_ttl_s: Annotated[float, Field(ge=1, le=300, allow_inf_nan=False)] = 6.0
    """A member that has not been heard of for so long loses its servers to others."""

    drain_timeout_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 30.0
    """How long calls of a server that is handed on may still take, with the questions that they wait for."""

    rebalance: bool = True
    """Whether servers are handed on to members that have fewer."""

    @property
    def tls(self) -> TlsFiles:
        """The member's TLS files."""
        return TlsFiles(self.cert, self.key, self.ca)

    def check_certificate(self) -> None:
        """Read the TLS files, and check that the certificate names this member, as other members require.

        Raises ConfigError, whose key is `tls_cert`, `tls_key` or `tls_client_ca` for `cert`, `key` or `ca`.
        """
        uris, hosts = read_certificate_names(self.tls.read().chain)
        for kind, name, names in (("URI", f"{MEMBER_URI}{self.name}", uris), ("DNS name", self.name, hosts)):
            if name not in names:
                actual = f"it has {', '.join(names[:3])}" if names else "it has none"
                problem = f"{self.cert} is not for the member {self.name!r}: of {kind} {name}; {actual}"
                raise ConfigError("tls_cert", problem)
