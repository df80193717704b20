"""docker-compose.yml: one hub with its page, a server and telemetry, through upgrade, kill, stop and restart."""

import sys
import time

from . import questions
from .compose import Compose
from .machine import Machine
from .report import Report, StepFailed, expect

FILE = "docker-compose.yml"
SERVICES = ("hub", "web", "demo", "door", "collector", "jaeger", "prometheus", "grafana")
STOP_GRACE_S = 30
BYTES = 1 << 30
"""`mem_limit` of the hub."""
CONFINED = {
    "Uid:": "10001",
    "CapEff:": "0000000000000000",
    "NoNewPrivs:": "1",
}
PAGE = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7880/', timeout=10).status)"
LIMIT = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max"


def run(machine: Machine, report: Report, before: str) -> None:
    """Run all steps; `before` is the image of an earlier version."""
    compose = Compose(machine, FILE)
    try:
        _upgrade(compose, report, before)
        _look_around(compose, report)
        _answer(compose, report)
        _end_and_start(compose, report)
    finally:
        with report.step("one hub: all is taken down, with its volumes"):
            compose.down()


def _upgrade(compose: Compose, report: Report, before: str) -> None:
    machine = compose.machine
    machine.run("docker", "tag", "hubbub:local", "hubbub:new")
    machine.run("docker", "tag", before, "hubbub:local")
    try:
        with report.step("one hub: the version before starts, and a question is answered") as step:
            compose.run("up", "--detach", "hub", title="the version before is started", limit_s=900)
            compose.wait_healthy("hub")
            old = questions.ask_and_answer(compose, "hub", "demo")
            step.figure = compose.hubbub("hub", "status")[0]["version"]
    finally:
        machine.run("docker", "tag", "hubbub:new", "hubbub:local")
    with report.step("one hub: upgraded by `up --build --detach`, all services healthy") as step:
        compose.run("up", "--build", "--detach", title="all is built and started", limit_s=900)
        compose.wait_healthy(*SERVICES)
        step.figure = f"hub healthy {compose.container('hub').seconds_to_healthy:.1f} s after its start"
    with report.step("one hub: what the version before has written is read"):
        expect(questions.wait_result(compose, "hub", old) == questions.ORDERED, "the call is not as it was")


def _look_around(compose: Compose, report: Report) -> None:
    with report.step("one hub: not root, no capability, no new privileges, its limit of memory") as step:
        status = dict(line.split()[:2] for line in compose.execute("hub", "cat", "/proc/1/status").splitlines())
        found = {name: status[name] for name in CONFINED}
        expect(found == CONFINED, f"{found}")
        limit = int(compose.execute("hub", "sh", "-c", LIMIT))
        expect(limit == BYTES, f"the limit is {limit} bytes")
        step.figure = f"uid {found['Uid:']}, {limit >> 20} MiB"
    with report.step("one hub: only its volume and /tmp can be written"):
        tried = compose.execute(
            "hub", "sh", "-c", "touch /srv/x /usr/x /etc/hubbub/x 2>&1; touch /var/lib/hubbub/x; cd /tmp && touch x"
        )
        expect(tried.count("Read-only file system") == 3, tried)
        tried = compose.execute("web", "sh", "-c", "touch /var/lib/hubbub/x 2>&1 || true")
        expect("Read-only file system" in tried, tried)
        compose.execute("hub", "rm", "/var/lib/hubbub/x")
    with report.step("one hub: the page answers at this machine's port"):
        shown = compose.machine.on_its_network(sys.executable, "-c", PAGE).strip()
        expect(shown == "200", shown)
    with report.step("one hub: metrics and traces arrive at the collector") as step:
        questions.ask_and_answer(compose, "hub", "demo")
        step.figure = ", ".join(_find_exports(compose))
    with report.step("one hub: memory when idle") as step:
        step.figure = ", ".join(f"{name} {compose.megabytes(name):.0f} MiB" for name in ("hub", "web", "demo"))


def _find_exports(compose: Compose) -> list[str]:
    deadline = time.monotonic() + 60
    logs = ""
    while time.monotonic() < deadline:
        logs = compose.logs("collector")
        found = {line.split()[0] for line in logs.splitlines()}
        if {"metrics", "trace"} <= found:
            return sorted(found)
        time.sleep(1)
    raise StepFailed(f"the collector got no metrics or no traces in 60 s: {logs[-300:]}")


def _answer(compose: Compose, report: Report) -> None:
    with report.step("one hub: a call asks, and is answered by `exec hub hubbub inbox answer`"):
        questions.ask_and_answer(compose, "hub", "demo")
    with report.step("one hub: a host starts `docker compose exec -T hub hubbub mcp`, calls and answers") as step:
        step.figure = questions.answer_as_host(compose.host("hub"))


def _end_and_start(compose: Compose, report: Report) -> None:
    with report.step("one hub: kill -9 of all its processes; Docker starts it again, nothing is lost") as step:
        call = questions.start_call(compose, "hub", "demo")
        question = questions.find_question(compose, "hub", call)
        compose.hubbub("hub", "inbox", "answer", question, *questions.DISH)
        kill(compose, "hub")
        compose.wait_healthy("hub", restarts=1)
        step.figure = f"healthy after {compose.container('hub').seconds_to_healthy:.1f} s"
        _expect_answered(compose, question)
    with report.step("one hub: stops within its grace") as step:
        began = time.monotonic()
        compose.run("stop", "hub")
        seconds = time.monotonic() - began
        ended = compose.container("hub").state
        expect(ended["ExitCode"] == 0 and not ended["OOMKilled"], f"it ended with {ended['ExitCode']}")
        expect(seconds < STOP_GRACE_S, f"{seconds:.0f} s")
        step.figure = f"{seconds:.1f} s of {STOP_GRACE_S}, exit status 0"
    with report.step("one hub: `down` and `up`, the volume is kept") as step:
        compose.run("down", title="all is stopped")
        compose.run("up", "--detach", title="all is started")
        compose.wait_healthy(*SERVICES)
        _expect_answered(compose, question)
        questions.ask_and_answer(compose, "hub", "demo")
        step.figure = f"hub healthy {compose.container('hub').seconds_to_healthy:.1f} s after its start"
    with report.step("one hub: the log has no traceback"):
        logs = compose.logs("hub", "web")
        expect("Traceback" not in logs, logs[logs.find("Traceback") :][:500])


def kill(compose: Compose, service: str) -> None:
    """Kill all processes of a service's container, the one that would learn of it too."""
    try:
        compose.execute(service, "sh", "-c", "kill -9 -1")
    except StepFailed as failure:
        expect("137" in str(failure), str(failure))


def _expect_answered(compose: Compose, question: str) -> None:
    found = {each["id"]: each for each in compose.hubbub("hub", "inbox", "list")}
    expect(question in found and found[question]["state"] == "answered", f"the acknowledged answer {question} is lost")
