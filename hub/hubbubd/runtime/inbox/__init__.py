"""The inbox: pending requests, workers, receiver tasks, and authorizations."""

from hubbubd.runtime.inbox.authorization import Authorizations, authorization_params
from hubbubd.runtime.inbox.inbox import Inbox
from hubbubd.runtime.inbox.reservations import WaitingHost
from hubbubd.runtime.inbox.tasks import Notify, ReceiverTasks, Tasks
from hubbubd.runtime.inbox.work import MAX_CAPACITY, Work
from hubbubd.runtime.inbox.workers import Assigned, AssignmentOver, Step, Worker

__all__ = [
    "MAX_CAPACITY",
    "Assigned",
    "AssignmentOver",
    "Authorizations",
    "Inbox",
    "Notify",
    "ReceiverTasks",
    "Step",
    "Tasks",
    "WaitingHost",
    "Work",
    "Worker",
    "authorization_params",
]
