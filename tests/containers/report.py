"""What each step did: said while it goes on, and as a table at the end."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

MOST_CHARACTERS = 600
"""Of what failed, its beginning and its end."""


class StepFailed(Exception):
    """A step was not as it should be; the message says how."""


@dataclass(slots=True)
class Step:
    """A row of the table."""

    title: str
    figure: str = ""
    state: str = "running"
    seconds: float = 0.0


class Report:
    """The steps of a run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    @contextmanager
    def step(self, title: str) -> Generator[Step]:
        """Run a step. What fails in it ends the scenario with StepFailed."""
        step = Step(title)
        self.steps.append(step)
        print(f"{title} ...", flush=True)
        began = time.monotonic()
        try:
            yield step
            step.state = "ok"
        except StepFailed as failure:
            step.state, step.figure = "FAILED", _shorten(str(failure))
            raise
        except BaseException as error:
            step.state, step.figure = "FAILED", _shorten(f"{type(error).__name__}: {error}")
            raise
        finally:
            step.seconds = time.monotonic() - began
            print(f"  {step.state}, {step.seconds:.1f} s{step.figure and f': {step.figure}'}", flush=True)

    @property
    def has_failed(self) -> bool:
        """Whether a step has failed."""
        return any(step.state == "FAILED" for step in self.steps)

    def table(self) -> str:
        """All steps, as a table of Markdown."""
        rows = [f"| {each.title} | {each.state} | {' '.join(each.figure.split())} |" for each in self.steps]
        return "\n".join(["| Step | | Figure |", "|---|---|---|", *rows])


def expect(is_so: bool, otherwise: str) -> None:
    """Raise StepFailed where something is not so."""
    if not is_so:
        raise StepFailed(otherwise)


def _shorten(text: str) -> str:
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else f"{text[:half]} ... {text[-half:]}"
