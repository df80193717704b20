"""Stores what is known of the log-in at a server, between the SDK's context and the vault."""

from typing import Any, TypeVar

from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, ValidationError

from hubbubd import bounds
from hubbubd.config import ServerConfig
from hubbubd.config.servers.server import OAuthConfig
from hubbubd.errors import Overtaken, VaultError
from hubbubd.redaction import REDACTION
from hubbubd.upstream.ports import SecretsVault, oauth_owner


class OAuthStorage:
    """A server's authorization, between the SDK's context and the vault.

    Implements the SDK's TokenStorage: whenever a part is to be stored, it stores the whole context.
    """

    def __init__(self, config: ServerConfig, vault: SecretsVault) -> None:
        oauth = config.oauth or OAuthConfig()
        self._server = config.name
        self._vault = vault
        self._configuration = {
            "url": config.url,
            **oauth.model_dump(include={"grant", "client_id", "client_metadata_url", "issuer", "redirect_port"}),
        }
        self.context: OAuthContext | None = None
        self.has_unsaved_changes = False
        """Whether the last attempt to store the context failed and is worth repeating."""
        if oauth.scope is not None or oauth.resource is not True:  # tokens for other scopes or resources are no use
            self._configuration |= {"scope": oauth.scope, "resource": oauth.resource}
        self._load()

    def _load(self) -> None:
        """Read the server's entry in the vault into `restored`; make it empty if it is of another configuration."""
        self._stored = self._vault.get(self._server)  # also what was stored for another configuration
        is_same_configuration = self._stored is not None and self._stored.get("about") == self._configuration
        self.restored: dict[str, Any] = self._stored if self._stored and is_same_configuration else {}

    def restore(self, context: OAuthContext) -> None:
        """Fill a new context with what the vault has for this server, if its configuration is the same."""
        self.context = context
        restored = _parse_stored(OAuthClientInformationFull, self.restored.get("client"))
        if restored is not None and context.client_info is None:
            context.client_info = restored
        elif restored is not None and context.client_info is not None:  # the configured client; its issuer was learned
            context.client_info.issuer = context.client_info.issuer or restored.issuer
        context.current_tokens = _parse_stored(OAuthToken, self.restored.get("tokens"))
        self._redact_secrets(context)
        context.token_expiry_time = bounds.clamp_moment(self.restored.get("expires_at"))
        context.oauth_metadata = _parse_stored(OAuthMetadata, self.restored.get("authorization_server"))
        context.protected_resource_metadata = _parse_stored(ProtectedResourceMetadata, self.restored.get("resource"))
        if context.protected_resource_metadata is not None:
            context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])

    async def adopt_changes(self) -> None:
        """Load what another member of the fleet has stored since: a refresh token can be used once only.

        Raises VaultError; then no token may be renewed, as the new one could not be stored.
        """
        if self.has_unsaved_changes:
            await self.save()
        await self._vault.refresh(self._server)
        current = self._vault.get(self._server)
        if current == self._stored:
            return
        self._load()
        if self.context is not None:
            if self._configuration["client_id"] is None:  # else the client is the configured one, which stays
                self.context.client_info = None
            self.restore(self.context)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens of the context, None if there are none; called by the SDK."""
        return self.context.current_tokens if self.context is not None else None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registered client of the context, None if there is none; called by the SDK."""
        return self.context.client_info if self.context is not None else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the whole context, which has these tokens already; called by the SDK. Raises OSError."""
        await self.save()

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the whole context, which has this client already; called by the SDK. Raises OSError."""
        await self.save()

    def _redact_secrets(self, context: OAuthContext) -> None:
        """Have the secrets of a context redacted from now on, in logs and faults."""
        client, tokens = context.client_info, context.current_tokens
        secrets = [client.client_secret] if client is not None else []
        secrets += [tokens.access_token, tokens.refresh_token] if tokens is not None else []
        REDACTION.set_secrets(oauth_owner(self._server), filter(None, secrets), whole_only=True)

    async def save(self) -> None:
        """Store the whole context, and have its secrets redacted; set `has_unsaved_changes`. Raises OSError."""
        context = self.context
        assert context is not None, "restored"
        self._redact_secrets(context)
        client, metadata = context.client_info, context.oauth_metadata
        if client is not None and client.issuer is None and metadata is not None:
            # Bind a client registered by the operator to the authorization server that accepted it.
            client.issuer = str(metadata.issuer)
        parts = {
            "client": client,
            "tokens": context.current_tokens,
            "authorization_server": metadata,
            "resource": context.protected_resource_metadata,
        }
        secrets: dict[str, Any] = {
            name: part.model_dump(mode="json", exclude_none=True) for name, part in parts.items() if part is not None
        }
        if "client" in secrets and self._configuration["client_id"]:
            secrets["client"].pop("client_secret", None)  # the configuration has it
        secrets |= {"about": self._configuration, "issuer": client.issuer if client else None}
        secrets["expires_at"] = context.token_expiry_time
        try:
            await self._vault.put(self._server, secrets)
        except VaultError as exc:
            self.has_unsaved_changes = not isinstance(exc, Overtaken)  # then another member has stored a newer one
            raise
        self.has_unsaved_changes, self._stored = False, secrets


Model = TypeVar("Model", bound=BaseModel)


def _parse_stored(model: type[Model], restored: object) -> Model | None:
    """Return a stored part as a model of the SDK, or None if this version of the SDK cannot read it."""
    try:
        return model.model_validate(restored)
    except ValidationError:
        return None
