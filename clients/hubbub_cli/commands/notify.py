"""`hubbub notify`."""

import os
import secrets
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub_cli.notices.rules import make_link_finder, read_rules
from hubbub_cli.output.printer import note, print_json, say
from hubbub_cli.run.session import Settings, Usage, get_settings, run_with_hub
from hubbub_cli.run.signals import stop_on_signal
from hubbub_cli.syntax.bounds import check_seconds
from hubbub_cli.syntax.params import RequestKinds
from hubbub_local.platform_dirs import find_data_dir

if TYPE_CHECKING:
    from hubbub_client.hub import Hub
    from hubbub_notify.notifier import News
    from hubbub_notify.rules import Rules
    from hubbub_notify.services import Service

Urls = Annotated[
    list[str] | None, typer.Argument(metavar="URL", help="Where to send to, as Apprise writes it; else the file's.")
]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The hub's configuration file, for its table [notify].")
]
Test = Annotated[bool, typer.Option("--test", help="Send a test to each URL, and end; needs no hub.")]
Servers = Annotated[
    list[str] | None, typer.Option("--server", metavar="PATTERN", help="Only of these servers; repeatable.")
]
After = Annotated[
    float | None, typer.Option(metavar="S", callback=check_seconds, help="Seconds that it is open, and nobody answers.")
]
QuietHours = Annotated[
    str | None, typer.Option(metavar="HH:MM-HH:MM", help="Send nothing at this time of day; later, all at once.")
]
Zone = Annotated[str | None, typer.Option(metavar="ZONE", help="With --quiet; else this machine's.")]
Digest = Annotated[
    float | None, typer.Option(metavar="S", callback=check_seconds, help="Seconds between two; what comes is gathered.")
]
PerHour = Annotated[int | None, typer.Option(metavar="N", help="At most so many per hour.")]
Content = Annotated[bool | None, typer.Option("--content/--no-content", help="Whether to send what is asked as well.")]
LinkBase = Annotated[
    str | None, typer.Option(metavar="BASE_URL", help="Where people reach the web page; else as it says itself.")
]
Login = Annotated[bool | None, typer.Option("--login/--no-login", help="Whether links let one browser in, once.")]
Once = Annotated[bool, typer.Option("--once", help="Tell of what is due now, and end.")]


def notify(
    context: typer.Context,
    urls: Urls = None,
    config: Config = None,
    test: Test = False,
    server: Servers = None,
    kind: RequestKinds = None,
    after: After = None,
    quiet: QuietHours = None,
    timezone: Zone = None,
    digest: Digest = None,
    per_hour: PerHour = None,
    content: Content = None,
    link: LinkBase = None,
    login: Login = None,
    once: Once = False,
) -> None:
    """Tell people when something waits for them, until interrupted: chat, mail, desktop, webhooks and more."""
    settings = get_settings(context)
    options: dict[str, Any] = {
        "urls": urls or None,
        "servers": server or None,
        "kinds": kind or None,
        "after_s": after,
        "quiet": quiet,
        "timezone": timezone,
        "digest_s": digest,
        "per_hour": per_hour,
        "content": content,
        "link": link,
        "login": login,
    }
    rules, targets = _choose_services(options, config)
    if test:
        _send_tests(targets, settings)
    else:
        _notify_until_stopped(context, rules, targets, once=once)


def _choose_services(options: dict[str, Any], config: Path | None) -> "tuple[Rules, Sequence[Service]]":
    """Return the rules of notifications, and the services that their URLs name. Raises Usage, also without a URL."""
    from hubbub_notify.rules import NoticeRuleProblem
    from hubbub_notify.services import parse_services

    try:
        rules, source = read_rules(options, config)
        targets = parse_services(rules.urls, "URL" if options["urls"] else source)
    except NoticeRuleProblem as problem:
        raise Usage(str(problem)) from None
    if not targets:
        raise Usage("name at least one URL, for example ntfys://ntfy.sh/TOPIC, or set urls in [notify]; docs/notify.md")
    return rules, targets


def _notify_until_stopped(context: typer.Context, rules: "Rules", targets: "Sequence[Service]", *, once: bool) -> None:
    """Notify people until interrupted; with `once`, only of what is due now, and exit 1 if somebody was not told."""
    settings = get_settings(context)

    async def run_notifier(hub: "Hub") -> bool:
        """Notify people until stopped; return False if this is `once` and somebody could not be notified."""
        from hubbub_notify.notifier import Notifier
        from hubbub_notify.sent_log import SentLog, SentLogProblem

        all_told = True

        def report_news(news: "News") -> None:
            """Print what was done, and remember whether all went well."""
            nonlocal all_told
            all_told = all_told and news.event in ("told", "answered")
            _print_news(news, settings.json)

        try:
            with closing(SentLog(find_data_dir(settings.data_dir) / "notify" / "told.db", "notify")) as state:
                notifier = Notifier(rules, lambda: targets, state, make_link_finder(settings, rules), report_news)
                with stop_on_signal() as stop:
                    _print_start(targets, settings.json)
                    await notifier.run(hub, stop, once=once)
        except SentLogProblem as problem:
            raise typer.TyperException(str(problem)) from None
        return all_told or not once

    run_with_hub(context, run_notifier, endless=True)


def _send_tests(targets: "Sequence[Service]", settings: Settings) -> None:
    """Send a test to each service. Raises Exit(1) if one did not arrive."""
    import anyio

    from hubbub_notify.text import compose_test_notice

    async def send_to_all() -> bool:
        """Send a test to each service, print what came of it, and return whether all arrived."""
        all_sent = True
        for target in targets:
            outcome, reason = await target.send(compose_test_notice(secrets.token_hex(8)))
            all_sent = all_sent and outcome == "sent"
            if settings.json:
                print_json({"event": "tested", "target": target.name, "sent": outcome == "sent", "why": reason or None})
            else:
                say(f"{target.name}: sent" if outcome == "sent" else f"{target.name}: not sent: {reason}")
        return all_sent

    if not anyio.run(send_to_all):
        raise typer.Exit(1)


def _print_start(targets: "Sequence[Service]", as_json: bool) -> None:
    """Print which services are notified."""
    if as_json:
        print_json({"event": "ready", "targets": [each.name for each in targets], "pid": os.getpid()})
    else:
        say(f"Telling {', '.join(each.name for each in targets)} when something waits. Ctrl-C ends it.")


def _print_news(news: "News", as_json: bool) -> None:
    """Print what became of a notification."""
    if as_json:
        print_json(news.to_json())
        return
    subject = news.requests[0] if len(news.requests) == 1 else f"{len(news.requests)} questions"
    match news.event:
        case "told":
            say(f"{subject}: told {news.target}")
        case "answered":
            say(f"{subject}: answered before {news.target} was notified")
        case "failed":
            later = f"; again in {news.again_s:g} s" if news.again_s is not None else ""
            note(f"{subject}: {news.target} was not told: {news.why}{later}")
        case "gave_up":
            note(f"{subject}: {news.target} was not told, and is not tried again: {news.why}")
        case "unknown":
            note(f"{subject}: {news.target or 'somebody'} was perhaps told, so not again: {news.why}")
