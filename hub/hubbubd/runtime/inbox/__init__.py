"""The inbox: pending requests, workers, receiver tasks, and authorizations."""

from hubbubd.runtime.inbox.authorization import Authorizations, question
from hubbubd.runtime.inbox.inbox import Inbox
from hubbubd.runtime.inbox.reserved import Waiting
from hubbubd.runtime.inbox.tasks import Notify, ReceiverTasks, Tasks
from hubbubd.runtime.inbox.work import MAX_CAPACITY, Work
from hubbubd.runtime.inbox.workers import Assigned, Over, Step, Worker

__all__ = [
    "MAX_CAPACITY",
    "Assigned",
    "Authorizations",
    "Inbox",
    "Notify",
    "Over",
    "ReceiverTasks",
    "Step",
    "Tasks",
    "Waiting",
    "Work",
    "Worker",
    "question",
]
