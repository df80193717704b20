"""Records: tables in memory over the store, commits and write-behind, watches, and the store's health."""

from hubbubd.runtime.records.broadcast import EventKind, Watch, WatcherLimit, WatchEvent
from hubbubd.runtime.records.condition import BOOKMARK_S, VersionedCondition
from hubbubd.runtime.records.health import Health
from hubbubd.runtime.records.ledger import COMMIT_HOOK, Ledger
from hubbubd.runtime.records.record_reader import RecordReader
from hubbubd.runtime.records.repair import RepairRule
from hubbubd.runtime.records.stored import StoreContent
from hubbubd.runtime.records.table import AgePosition, Change, Table
from hubbubd.runtime.records.write_behind import Step, delete

__all__ = [
    "BOOKMARK_S",
    "COMMIT_HOOK",
    "AgePosition",
    "Change",
    "EventKind",
    "Health",
    "Ledger",
    "RecordReader",
    "RepairRule",
    "Step",
    "StoreContent",
    "Table",
    "VersionedCondition",
    "Watch",
    "WatchEvent",
    "WatcherLimit",
    "delete",
]
