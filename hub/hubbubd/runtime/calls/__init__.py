"""Calls: queues, exchanges with servers, multi-round requests, client tasks, resumption after a restart, spans."""

from hubbubd.runtime.calls.call_queue import ActiveCall, End, ServerQueue
from hubbubd.runtime.calls.call_spans import SpanRecorder, served
from hubbubd.runtime.calls.causes import Causes
from hubbubd.runtime.calls.client_tasks import ClientTasks
from hubbubd.runtime.calls.elsewhere import Elsewhere
from hubbubd.runtime.calls.exchange import CallExchange
from hubbubd.runtime.calls.live import Live, LiveCalls
from hubbubd.runtime.calls.multi_round import Rounds, kind_of
from hubbubd.runtime.calls.orphans import Orphans
from hubbubd.runtime.calls.registry import Calls
from hubbubd.runtime.calls.resumption import Resumption
from hubbubd.runtime.calls.spec import CallSpec, LogEvent, ProgressEvent
from hubbubd.runtime.calls.task_support import TaskSupport
from hubbubd.runtime.calls.url_elicitation import Consents

__all__ = [
    "ActiveCall",
    "CallExchange",
    "CallSpec",
    "Calls",
    "Causes",
    "ClientTasks",
    "Consents",
    "Elsewhere",
    "End",
    "Live",
    "LiveCalls",
    "LogEvent",
    "Orphans",
    "ProgressEvent",
    "Resumption",
    "Rounds",
    "ServerQueue",
    "SpanRecorder",
    "TaskSupport",
    "kind_of",
    "served",
]
