"""The short names that fields of records have as values."""

from typing import Literal

Transport = Literal["stdio", "http", "sse"]
ServerState = Literal["disconnected", "connecting", "connected", "disconnecting", "error"]
DesiredState = Literal["connected", "disconnected"]
RequestState = Literal["open", "answered", "withdrawn", "expired"]
DeliveryState = Literal["none", "pending", "delivered", "failed", "late"]
CauseSource = Literal["wire", "inferred"]
Happening = Literal[
    "shown",
    "claimed",
    "released",
    "lapsed",
    "answered",
    "expired",
    "withdrawn",
    "delivered",
    "failed",
    "not_counted",
    "approved",
]
CallState = Literal["queued", "in_progress", "waiting_input", "completed", "failed", "cancelled"]
EventKind = Literal[
    "progress",
    "log",
    "stderr",
    "resource_updated",
    "list_changed",
    "cancelled",
    "elicitation_complete",
    "task_status",
    "other",
    "throttled",
    "config_reloaded",
    "config_problem",
]
TaskRole = Literal["receiver", "client"]
TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
CatalogKind = Literal["tool", "resource", "template", "prompt", "skill"]
LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
Role = Literal["viewer", "responder", "approver", "caller", "operator", "admin"]
Freshness = Literal["unknown", "fresh", "stale", "error", "empty"]
