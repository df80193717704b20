"""The endpoints that there are: each profile, and each server by itself."""

from hubbubd.config import HubSettings
from hubbubd.config.sections.mcp import DEFAULT, DEFAULT_PROFILE, ProfileSettings, QuestionSettings
from hubbubd.core.access import Principal
from hubbubd.downstream.endpoint import McpEndpoint
from hubbubd.downstream.questions.state_tokens import StateTokens
from hubbubd.downstream.views.list_groups import ListGroups
from hubbubd.downstream.views.profile_view import ProfileView
from hubbubd.downstream.views.view import EndpointView, ServerView
from hubbubd.errors import NotFound
from hubbubd.runtime.hub import Hub


class McpEndpoints:
    """Endpoints, made when they are first asked for. What a caller may not use is not there."""

    def __init__(self, hub: Hub, tokens: StateTokens) -> None:
        self._hub = hub
        self._tokens = tokens
        self._lists = ListGroups()
        self._made: dict[str, McpEndpoint] = {}
        hub.configuration.on_adopted(self._adopt)

    def profile(self, name: str) -> McpEndpoint:
        """Return the endpoint of a profile. Raises NotFound."""
        if name != DEFAULT and name not in self._hub.configuration.settings.profiles:
            raise NotFound("profile", name)
        return self._made.get(f"p/{name}") or self._keep(
            ProfileView(self._hub, name, lambda: self._settings(name), self._lists)
        )

    def server(self, name: str, caller: Principal) -> McpEndpoint:
        """Return the endpoint of one server. Raises NotFound."""
        endpoint = self._made.get(f"s/{name}")
        view = ServerView(self._hub, name) if endpoint is None else endpoint.view
        if not view.servers(caller):
            raise NotFound("server", name)
        self._hub.servers.config(name)  # raises
        return endpoint or self._keep(view)

    def questions(self, endpoint: McpEndpoint) -> dict[str, str]:
        """Return who is asked what servers ask, by kind."""
        policy = endpoint.view.policy
        return {name: getattr(policy, name) for name in QuestionSettings.model_fields}

    def _keep(self, view: EndpointView) -> McpEndpoint:
        made = self._made[view.name] = McpEndpoint(self._hub, view, self._tokens)
        return made

    def _adopt(self, settings: HubSettings) -> None:
        """Remove the endpoints of profiles that are no more."""
        there = {f"p/{name}" for name in (DEFAULT, *settings.profiles)}
        for name in [each for each in self._made if each.startswith("p/") and each not in there]:
            self._made.pop(name).remove()

    def _settings(self, name: str) -> ProfileSettings:
        return self._hub.configuration.settings.profiles.get(name, DEFAULT_PROFILE)
