"""Notifications (extra `notify`): a service of its own that tells people when a pending request waits for them.

`rules` says who is notified of what and when, and `plan` decides; both are pure. `sent_log` remembers on disk what
was sent, so that nobody is notified twice. `notifier` watches the inbox and does the work; `services` and
`push` are where it sends to.
"""
