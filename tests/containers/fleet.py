"""docker-compose.fleet.yml: three members and their PostgreSQL, through kills, also of the database, and stops."""

import secrets
import time

from . import questions
from .compose import Compose
from .machine import Machine
from .report import Report, StepFailed, expect
from .single import kill

FILE = "docker-compose.fleet.yml"
MEMBERS = ("a", "b", "c")
SERVICES = (*MEMBERS, "web", "door", "kitchen", "database")
STOP_GRACE_S = 60
TOGETHER_S = 90


def run(machine: Machine, report: Report) -> None:
    """Run all steps."""
    compose = Compose(machine, FILE, {"DATABASE_PASSWORD": secrets.token_hex(32)})
    try:
        with report.step("fleet: `up --build --detach`, all services healthy") as step:
            compose.run("up", "--build", "--detach", title="all is built and started", limit_s=900)
            compose.wait_healthy(*SERVICES)
            step.figure = "healthy after " + ", ".join(
                f"{name} {compose.container(name).seconds_to_healthy:.1f} s" for name in (*MEMBERS, "database")
            )
        with report.step("fleet: three members are live"):
            _wait_together(compose)
        with report.step("fleet: memory when idle") as step:
            step.figure = ", ".join(f"{name} {compose.megabytes(name):.0f} MiB" for name in (*MEMBERS, "database"))
        with report.step("fleet: a call of a is answered at b"):
            questions.ask_and_answer(compose, "a", "kitchen", answered_at="b")
        with report.step("fleet: a host starts `exec -T c hubbub mcp`, calls and answers") as step:
            step.figure = questions.answer_as_host(compose.host("c"))
        _kill_owner(compose, report)
        _restart_database(compose, report)
        _stop(compose, report)
    finally:
        with report.step("fleet: all is taken down, with its volumes"):
            compose.down()


def _find_live(compose: Compose, asked: str) -> list[str]:
    (status,) = compose.hubbub(asked, "fleet", "status")
    return sorted(each["name"] for each in status["members"] if each["state"] == "live")


def _wait_together(compose: Compose) -> None:
    deadline = time.monotonic() + TOGETHER_S
    live: list[str] = []
    while time.monotonic() < deadline:
        live = _find_live(compose, "a")
        if live == list(MEMBERS):
            return
        time.sleep(1)
    raise StepFailed(f"live after {TOGETHER_S} s: {live}")


def _find_owner(compose: Compose) -> str:
    (status,) = compose.hubbub("a", "fleet", "status")
    (owner,) = (each["name"] for each in status["members"] if "kitchen" in each["servers"])
    return owner


def _kill_owner(compose: Compose, report: Report) -> None:
    with report.step("fleet: kill -9 of the owner while its question waits; another member takes the answer") as step:
        owner = _find_owner(compose)
        other, third = (name for name in MEMBERS if name != owner)
        call = questions.start_call(compose, other, "kitchen")
        question = questions.find_question(compose, third, call)
        kill(compose, owner)
        began = time.monotonic()
        compose.hubbub(third, "inbox", "answer", question, *questions.DISH)
        text = questions.wait_result(compose, other, call)
        expect(text == questions.ORDERED, f"the call returned {text!r}")
        step.figure = f"result after {time.monotonic() - began:.1f} s"
    with report.step("fleet: the killed member comes back by itself") as step:
        compose.wait_healthy(owner, restarts=1)
        _wait_together(compose)
        step.figure = f"healthy {compose.container(owner).seconds_to_healthy:.1f} s after its start"


def _restart_database(compose: Compose, report: Report) -> None:
    with report.step("fleet: the database is killed and started; members are healthy again, nothing is lost"):
        call = questions.ask_and_answer(compose, "b", "kitchen", answered_at="c")
        compose.run("kill", "--signal", "SIGKILL", "database")
        compose.run("start", "database")
        compose.wait_healthy("database", *MEMBERS)
        expect(questions.wait_result(compose, "a", call) == questions.ORDERED, "the call is not as it was")
        questions.ask_and_answer(compose, "c", "kitchen", answered_at="a")


def _stop(compose: Compose, report: Report) -> None:
    with report.step("fleet: a member stops within its grace, the others go on") as step:
        began = time.monotonic()
        compose.run("stop", "b")
        seconds = time.monotonic() - began
        ended = compose.container("b").state
        expect(ended["ExitCode"] == 0, f"it ended with {ended['ExitCode']}")
        expect(seconds < STOP_GRACE_S, f"{seconds:.0f} s")
        questions.ask_and_answer(compose, "a", "kitchen", answered_at="c")
        step.figure = f"{seconds:.1f} s of {STOP_GRACE_S}"
    with report.step("fleet: `down` and `up`, the volumes are kept"):
        call = questions.ask_and_answer(compose, "c", "kitchen")
        compose.run("down", title="all is stopped")
        compose.run("up", "--detach", title="all is started")
        compose.wait_healthy(*SERVICES)
        _wait_together(compose)
        expect(questions.wait_result(compose, "b", call) == questions.ORDERED, "the call is not as it was")
    with report.step("fleet: the logs have no traceback"):
        logs = compose.logs(*MEMBERS, "web")
        expect("Traceback" not in logs, logs[logs.find("Traceback") :][:500])
