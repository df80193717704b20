"""Everything that the API can do has a command, or a reason why not."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import hubbub.v1

COMMANDS: dict[str, tuple[str, ...]] = {
    "AdminService.GetStatus": ("status",),
    "AdminService.GetSelf": ("whoami",),
    "AdminService.CreateToken": ("tokens", "create", "ci", "--role", "caller"),
    "AdminService.ListTokens": ("tokens", "list"),
    "AdminService.RevokeToken": ("tokens", "revoke", "ci"),
    "AdminService.ListAuditEntries": ("audit", "list"),
    "AdminService.GetStoreStats": ("store", "stats"),
    "AdminService.CompactStore": ("store", "compact"),
    "AdminService.TrustClock": ("store", "trust-clock"),
    "AdminService.BackupStore": ("store", "backup", "COPY"),
    "AdminService.ReloadConfig": ("reload",),
    "ApprovalService.ListRememberedApprovals": ("approvals", "list"),
    "ApprovalService.RevokeRememberedApproval": ("approvals", "revoke", "a"),
    "ApprovalService.GetApprovalRules": ("approvals", "rules"),
    "ApprovalService.CheckApproval": ("approvals", "check", "demo", "order_lunch"),
    "ApprovalService.ReplayApprovals": ("approvals", "replay"),
    "CallService.StartCall": ("call", "demo", "order_lunch", "--detach"),
    "CallService.CallMethod": ("log-level", "demo", "debug"),
    "CallService.WatchCalls": ("calls", "watch"),
    "CallService.GetCall": ("calls", "get", "lunch"),
    "CallService.ListCalls": ("calls", "list"),
    "CallService.CancelCall": ("calls", "cancel", "lunch"),
    "CallService.GetQueue": ("queue", "demo"),
    "CallService.ClearQueue": ("queue", "demo", "--clear"),
    "CatalogService.ListCatalogEntries": ("catalog", "tools"),
    "CatalogService.RefreshCatalog": ("catalog", "refresh", "demo"),
    "CatalogService.WatchCatalogLists": ("catalog", "watch"),
    "EventService.WatchEvents": ("events", "watch"),
    "EventService.TailLogs": ("logs", "demo"),
    "EventService.WatchResource": ("subscribe", "demo", "file:///x"),
    "FleetService.GetFleet": ("fleet", "status"),
    "FleetService.MoveServer": ("fleet", "move", "demo"),
    "FleetService.DrainMember": ("fleet", "drain"),
    "FleetService.ResumeMember": ("fleet", "resume", "b"),
    "FleetService.ExpelMember": ("fleet", "expel", "b", "--dead"),
    "FleetService.RotateVaultKey": ("fleet", "rotate-key"),
    "FleetService.FinishUpgrade": ("fleet", "finish-upgrade"),
    "InboxService.WatchPendingRequests": ("inbox", "watch"),
    "InboxService.ListPendingRequests": ("inbox", "list"),
    "InboxService.GetPendingRequest": ("inbox", "show", "r"),
    "InboxService.ClaimPendingRequest": ("inbox", "claim", "r"),
    "InboxService.RenewClaim": ("inbox", "renew", "r", "--claim", "c"),
    "InboxService.ReleasePendingRequest": ("inbox", "release", "r", "--claim", "c"),
    "InboxService.AnswerPendingRequest": ("inbox", "answer", "r", "--decline"),
    "InboxService.Work": ("agent", "--decline"),
    "LoginService.CreateLoginCode": ("mcp", "login", "--no-browser"),
    "McpService.ListHosts": ("mcp", "sessions"),
    "ServerService.AddServer": ("servers", "add", "x", "--url", "http://127.0.0.1:9/mcp"),
    "ServerService.UpdateServer": ("servers", "update", "x", "--url", "http://127.0.0.1:9/mcp"),
    "ServerService.RemoveServer": ("servers", "remove", "x"),
    "ServerService.GetServer": ("servers", "get", "demo"),
    "ServerService.ListServers": ("servers", "list"),
    "ServerService.ConnectServer": ("servers", "connect", "demo"),
    "ServerService.DisconnectServer": ("servers", "disconnect", "demo"),
    "ServerService.LogOutServer": ("servers", "logout", "demo"),
    "ServerService.GetRoots": ("roots", "demo"),
    "ServerService.SetRoots": ("roots", "demo", "set", "[]"),
    "ServerService.WatchServers": ("servers", "watch"),
    "TaskService.ListTasks": ("tasks", "list"),
    "TaskService.GetTask": ("tasks", "get", "t"),
    "TaskService.GetTaskResult": ("tasks", "result", "t"),
    "TaskService.CancelTask": ("tasks", "cancel", "t"),
    "TaskService.WatchTasks": ("tasks", "watch"),
}
WITHOUT_A_COMMAND: dict[str, str] = {
    "AdminService.CheckHub": "`doctor` goes on where it is refused (test_doctor.py)",
    "McpService.Serve": "carries what a host says to `mcp`, which goes on when it is refused (test_mcp_bridge.py)",
    "CallService.StreamCalls": "carries the calls of a program that makes many (test_call_stream.py)",
}
"""An RPC that no command needs, and why."""


def rpcs() -> set[str]:
    modules = [import_module(f"hubbub.v1.{path.stem}") for path in Path(hubbub.v1.__path__[0]).glob("*_pb2.py")]
    return {
        f"{service.name}.{method.name}"
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def test_every_rpc_has_a_command_or_a_reason() -> None:
    assert {*COMMANDS, *WITHOUT_A_COMMAND} == rpcs()
    assert not COMMANDS.keys() & WITHOUT_A_COMMAND.keys()


@pytest.mark.parametrize("rpc", COMMANDS)
async def test_its_command_is_what_calls_an_rpc(rpc: str, hub: Any, hubbub: Any, refusal: Any) -> None:
    def refuse(_: Any) -> Any:
        raise refusal("PERMISSION_DENIED", "NOT_ALLOWED")

    async def refuse_a_watch(request: Any) -> AsyncIterator[Any]:
        yield refuse(request)

    hub.replies = defaultdict[str, Callable[[Any], Any]](lambda: refuse)
    hub.streams = defaultdict[str, Callable[[Any], AsyncIterator[Any]]](lambda: refuse_a_watch)
    ran = await hubbub(*(str(hub.data_dir / "copy") if word == "COPY" else word for word in COMMANDS[rpc]))
    # A set: gRPC may lose why a dialogue was refused when it is being written to, and then the dialogue is tried again.
    assert {name for name, _, _ in hub.seen} == {rpc.partition(".")[2]}
    assert (ran.status, ran.error["reason"]) == (1, "NOT_ALLOWED")
