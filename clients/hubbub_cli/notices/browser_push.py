"""Pushes to the browsers of `hubbub web`, by the rules of the table [notify]."""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hubbub_cli.notices.rules import read_rules
from hubbub_cli.output.printer import note
from hubbub_cli.run.session import Settings, Usage
from hubbub_client.data.records import PendingRequest
from hubbub_local.platform_dirs import find_data_dir

if TYPE_CHECKING:
    import anyio

    from hubbub_client.hub import Hub
    from hubbub_notify.notifier import News
    from hubbub_notify.push import Keys
    from hubbub_web.push import Subscriber


class Pusher:
    """Sends pushes to browsers."""

    def __init__(self, settings: Settings, config: Path | None) -> None:
        """Read the rules, without `urls`, which may need variables that only `hubbub notify` has. Raises Usage."""
        from hubbub_notify.rules import NoticeRuleProblem

        try:
            self._rules, _ = read_rules({}, config, ignored_keys={"urls"})
        except NoticeRuleProblem as problem:
            raise Usage(str(problem)) from None
        self._folder = find_data_dir(settings.data_dir) / "notify"
        self._key_lock = threading.Lock()

    def read_public_key(self) -> str:
        """Return the key with which browsers subscribe; it is made on first use. Blocks. Raises OSError, ValueError."""
        with self._key_lock:
            return self._keys.public

    @cached_property
    def _keys(self) -> "Keys":
        """The keys of this page at push services, made on first use. Raises OSError, ValueError."""
        from hubbub_notify.push import Keys

        return Keys(self._folder / "push.pem")

    async def run(
        self, hub: "Hub", has_subscriber: "anyio.Event", subscribers: Callable[[], Sequence["Subscriber"]]
    ) -> None:
        """Send pushes to the subscribers, once there is one, until cancelled.

        A failure is printed, and ends the pushes alone.
        """
        import anyio.to_thread

        from hubbub_client.errors import HubbubError
        from hubbub_notify.notifier import Notifier
        from hubbub_notify.push import Browser
        from hubbub_notify.sent_log import SentLog, SentLogProblem

        def make_browser(subscriber: "Subscriber") -> Browser:
            """Return a subscriber as a target of notifications."""
            subscription = subscriber.subscription
            return Browser(
                endpoint=subscription.endpoint,
                p256dh=subscription.p256dh,
                auth=subscription.auth,
                keys=self._keys,
                contact=self._rules.contact,
                on_unsubscribed=subscriber.end,
            )

        await has_subscriber.wait()  # until then nothing is written, and nothing watched
        try:
            await anyio.to_thread.run_sync(self.read_public_key)
            with closing(await anyio.to_thread.run_sync(SentLog, self._folder / "told.db", "push")) as state:
                await Notifier(
                    self._rules,
                    lambda: [make_browser(subscriber) for subscriber in subscribers()],
                    state,
                    _return_no_link,
                    _report_failure,
                ).run(hub)
        except (SentLogProblem, HubbubError, OSError, ValueError) as problem:
            note(f"browsers are not told any more: {problem}")


async def _return_no_link(_requests: Sequence[PendingRequest], _to: str) -> str:
    """Return no link: a push opens the page in a browser that is logged in, and so needs no secret in a link."""
    return ""


def _report_failure(news: "News") -> None:
    """Print that a browser was not told; print nothing of what went well."""
    if news.event in ("failed", "gave_up"):
        note(f"{news.target} was not told: {news.why}")
