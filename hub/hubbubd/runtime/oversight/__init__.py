"""Oversight: audit log, quotas and rate limits, API tokens, people at browsers, connected hosts, and retention."""

from hubbubd.runtime.oversight.ages import Ages, Upkeep
from hubbubd.runtime.oversight.audit import Attempt, Audit
from hubbubd.runtime.oversight.host_sessions import HostSessions
from hubbubd.runtime.oversight.hosts import ConnectedHost, ConnectedHosts, HostFilter, HostIdentity, OpenRequest
from hubbubd.runtime.oversight.logins import (
    AuthorizationCode,
    DecidedBefore,
    IssuedTokens,
    LoginDecision,
    LoginKey,
    Logins,
)
from hubbubd.runtime.oversight.quotas import Quota, Quotas, Rate
from hubbubd.runtime.oversight.retention import Retention
from hubbubd.runtime.oversight.tokens import NewestToken, Token, Tokens
from hubbubd.runtime.oversight.visitors import CodeRefused, Visitors

__all__ = [
    "Ages",
    "Attempt",
    "Audit",
    "AuthorizationCode",
    "CodeRefused",
    "ConnectedHost",
    "ConnectedHosts",
    "DecidedBefore",
    "HostFilter",
    "HostIdentity",
    "HostSessions",
    "IssuedTokens",
    "LoginDecision",
    "LoginKey",
    "Logins",
    "NewestToken",
    "OpenRequest",
    "Quota",
    "Quotas",
    "Rate",
    "Retention",
    "Token",
    "Tokens",
    "Upkeep",
    "Visitors",
]
