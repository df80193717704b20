"""Checks across settings, and of the TLS files that they name. Called when settings are loaded or reloaded."""

from collections.abc import Iterable

from hubbubd.config.hub import HubSettings
from hubbubd.config.sections.approvals import APPROVALS
from hubbubd.config.sections.fleet import FLEET, FleetSettings
from hubbubd.config.sections.mcp import check_profiles
from hubbubd.config.sections.network import (
    CERT,
    OIDC,
    OIDC_ROLE,
    UNIX,
    is_all_addresses,
    is_local,
    make_off_loopback_message,
)
from hubbubd.errors import ConfigError


def check_settings(hub: HubSettings, servers: Iterable[str]) -> None:
    """Check that settings fit each other and the files they name. Raises ConfigError with the wrong setting as its key.

    `servers` are the names of the servers of all files.
    """
    if (hub.tls_cert is None) is not (hub.tls_key is None):
        present, missing = ("tls_key", "tls_cert") if hub.tls_cert is None else ("tls_cert", "tls_key")
        raise ConfigError(present, f"needs {missing}, too")
    if hub.tls_client_ca is not None and hub.tls is None:
        raise ConfigError("tls_client_ca", "needs tls_cert and tls_key, too")
    for key, listen in (("listen", hub.listen), ("connect_listen", hub.connect_listen), ("mcp_listen", hub.mcp_listen)):
        if listen is not None and hub.tls is None and not is_local(listen):
            raise ConfigError(key, make_off_loopback_message(listen))
    _check_oidc(hub)
    _check_login(hub)
    _check_grants(hub)
    check_profiles(hub.mcp_profiles, servers)
    if hub.tls is not None:
        hub.tls.read()
    if hub.fleet is not None:
        if hub.store.url is None:
            raise ConfigError(FLEET, "needs [store] url, too: the members of a fleet share a database")
        _check_fleet(hub.fleet)


def _check_fleet(fleet: FleetSettings) -> None:
    """Raise ConfigError if other members could not reach this member, or its certificate does not name it."""
    if fleet.listen.startswith(UNIX):
        raise ConfigError(FLEET, "listen: must be HOST:PORT or [IPV6]:PORT; other members come over the network")
    if is_all_addresses(fleet.listen) and fleet.reached_at is None:
        raise ConfigError(FLEET, f"listen: {fleet.listen} is all addresses, so reached_at must say which one to use")
    try:
        fleet.check_certificate()
    except ConfigError as exc:
        key = {"tls_cert": "cert", "tls_key": "key", "tls_client_ca": "ca"}[exc.key]
        raise ConfigError(FLEET, f"{key}: {exc.problem}") from None


def _check_oidc(hub: HubSettings) -> None:
    """Raise ConfigError if an issuer has no audience, or another OIDC setting has no issuer."""
    if hub.oidc_issuer is not None:
        if hub.oidc_audience is None:
            raise ConfigError("oidc_issuer", "needs oidc_audience, too: a token for others must not open this hub")
        return
    for key in ("oidc_audience", "oidc_jwks_url", "oidc_roles_claim"):
        if getattr(hub, key) is not None:
            raise ConfigError(key, "needs oidc_issuer, too")


def _check_login(hub: HubSettings) -> None:
    """Raise ConfigError if the log-in of hosts is on beside an OIDC issuer, or is set without `mcp_listen`."""
    if hub.mcp_login and hub.oidc_issuer is not None:
        raise ConfigError("mcp_login", "must not be true beside oidc_issuer: hosts log in there")
    for key in ("mcp_login", "mcp_public_url"):
        if getattr(hub, key) and hub.mcp_listen is None:
            raise ConfigError(key, "needs mcp_listen, too: that is where hosts come to")


def _check_grants(hub: HubSettings) -> None:
    """Raise ConfigError for a grant or an approver whose authority (certificates, OIDC) is not configured."""
    needed = {
        CERT: ("tls_client_ca", hub.tls_client_ca),
        OIDC: ("oidc_issuer", hub.oidc_issuer),
        OIDC_ROLE: ("oidc_roles_claim", hub.oidc_roles_claim),
    }
    for number, grant in enumerate(hub.grants):
        name, value = needed[grant.who.partition(":")[0]]
        if value is None:
            raise ConfigError("grants", f"{number}.who: nobody can be {grant.who!r} without {name}")
    for rule in hub.approvals.rules:
        for who in rule.approvers:
            # A name without an authority needs no setting.
            name, value = needed.get(who.partition(":")[0] if ":" in who else "", ("", True))
            if value is None:
                raise ConfigError(APPROVALS, f"rule {rule.name!r}: nobody can be {who!r} without {name}")
