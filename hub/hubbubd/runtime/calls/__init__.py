"""Calls: queues, exchanges with servers, multi-round requests, client tasks, resumption after a restart, spans."""

from hubbubd.runtime.calls.approvals.gate import DEFAULT_RULE, ApprovalGate
from hubbubd.runtime.calls.approvals.remembered import RememberedApprovals
from hubbubd.runtime.calls.causes import Causes
from hubbubd.runtime.calls.exchange import CallExchange
from hubbubd.runtime.calls.people import ASK, HOST, open_people_queue, people_config
from hubbubd.runtime.calls.progress import LiveCalls, LiveEvent
from hubbubd.runtime.calls.queue import ActiveCall, End, ServerQueue
from hubbubd.runtime.calls.registry import Calls
from hubbubd.runtime.calls.resumption import Resumption
from hubbubd.runtime.calls.rounds.multi_round import MultiRound, request_kind
from hubbubd.runtime.calls.rounds.url_elicitation import Consents
from hubbubd.runtime.calls.spans import SpanRecorder, inbound_request_span
from hubbubd.runtime.calls.spec import CallSpec, LogEvent, ProgressEvent, RemoteCalls
from hubbubd.runtime.calls.tasks.client_tasks import ClientTasks
from hubbubd.runtime.calls.tasks.orphans import Orphans
from hubbubd.runtime.calls.tasks.support import TaskSupport

__all__ = [
    "ASK",
    "DEFAULT_RULE",
    "HOST",
    "ActiveCall",
    "ApprovalGate",
    "CallExchange",
    "CallSpec",
    "Calls",
    "Causes",
    "ClientTasks",
    "Consents",
    "End",
    "LiveCalls",
    "LiveEvent",
    "LogEvent",
    "MultiRound",
    "Orphans",
    "ProgressEvent",
    "RememberedApprovals",
    "RemoteCalls",
    "Resumption",
    "ServerQueue",
    "SpanRecorder",
    "TaskSupport",
    "inbound_request_span",
    "open_people_queue",
    "people_config",
    "request_kind",
]
