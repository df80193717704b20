"""Records: tables in memory over the store, commits and write-behind, watches, and the store's health."""

from hubbubd.runtime.records.broadcast import EventKind, Watch, WatcherLimit, WatchEvent
from hubbubd.runtime.records.health import Health
from hubbubd.runtime.records.ledger import COMMIT_HOOK, Ledger
from hubbubd.runtime.records.mending import Mending
from hubbubd.runtime.records.order import Place
from hubbubd.runtime.records.pulse import BOOKMARK_S, Pulse
from hubbubd.runtime.records.steps import Step, gone
from hubbubd.runtime.records.table import Change, Stored, Table

__all__ = [
    "BOOKMARK_S",
    "COMMIT_HOOK",
    "Change",
    "EventKind",
    "Health",
    "Ledger",
    "Mending",
    "Place",
    "Pulse",
    "Step",
    "Stored",
    "Table",
    "Watch",
    "WatchEvent",
    "WatcherLimit",
    "gone",
]
