"""What launchd takes: the keys of launchd.plist(5) that an agent of a person may have, and what plutil(1) looks at."""

import plistlib
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any
from xml.parsers.expat import ExpatError

HEAD = re.compile(
    rb'<\?xml version="1\.0" encoding="UTF-8"\?>\s*<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1\.0//EN" '
)
KEY = re.compile(rb"^\t<key>([^<]*)</key>", re.MULTILINE)
CONDITIONS = {"SuccessfulExit", "NetworkState", "Crashed", "AfterInitialDemand"}
PROCESS_TYPES = {"Background", "Standard", "Adaptive", "Interactive"}

Rule = Callable[[Any], str | None]


def text(value: Any) -> str | None:
    """What is wrong with a value that must be a text."""
    return None if isinstance(value, str) else "must be a text"


def path(value: Any) -> str | None:
    """What is wrong with a path: launchd expands none, and starts in no folder of a person."""
    if problem := text(value):
        return problem
    return None if PurePosixPath(value).is_absolute() else f"{value} is not absolute"


def command(value: Any) -> str | None:
    """What is wrong with the words of a command."""
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        return "must be a list of texts, and not empty"
    return path(value[0])


def flag(value: Any) -> str | None:
    """What is wrong with a value that must be true or false."""
    return None if isinstance(value, bool) else "must be true or false"


def number(least: int, most: int) -> Rule:
    """A rule for whole numbers."""

    def rule(value: Any) -> str | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return None if fits else f"must be a whole number, {least} to {most}"

    return rule


def variables(value: Any) -> str | None:
    """What is wrong with an environment."""
    fits = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    return None if fits else "must be a table of texts"


def keep_alive(value: Any) -> str | None:
    """What is wrong with what says when the program is started again."""
    if isinstance(value, bool):
        return None
    fits = isinstance(value, dict) and value and value.keys() <= CONDITIONS
    fits = fits and all(isinstance(each, bool) for each in value.values())
    return None if fits else "must be true or false, or a table of known conditions"


def process_type(value: Any) -> str | None:
    """What is wrong with the name of how the system treats the program."""
    return None if value in PROCESS_TYPES else f"{value} is none of its words"


RULES: Mapping[str, Rule] = {
    "Label": text,
    "Program": path,
    "ProgramArguments": command,
    "EnvironmentVariables": variables,
    "WorkingDirectory": path,
    "StandardInPath": path,
    "StandardOutPath": path,
    "StandardErrorPath": path,
    "RunAtLoad": flag,
    "KeepAlive": keep_alive,
    "ThrottleInterval": number(1, 3600),
    "ExitTimeOut": number(1, 3600),
    "StartInterval": number(1, 86_400),
    "Umask": number(0, 0o777),
    "Nice": number(-20, 20),
    "ProcessType": process_type,
    "AbandonProcessGroup": flag,
    "LowPriorityIO": flag,
    "LaunchOnlyOnce": flag,
}


def broken_rules(content: bytes, name: str) -> list[str]:
    """What launchd or plutil would not take of a file of this name."""
    try:
        agent = plistlib.loads(content)
    except (plistlib.InvalidFileException, ExpatError, ValueError):
        return ["is no property list"]
    if not HEAD.match(content):
        return ["is no text"]
    if not isinstance(agent, dict):
        return ["is no table"]
    keys = [each.decode() for each in KEY.findall(content)]
    found = [f"{key}: is there twice" for key in dict.fromkeys(keys) if keys.count(key) > 1]
    found += [f"{key}: is missing" for key in ("Label", "ProgramArguments") if key not in agent]
    for key, value in agent.items():
        rule = RULES.get(key)
        problem = rule(value) if rule else "no key of launchd.plist(5)"
        found += [f"{key}: {problem}"] if problem else []
    if found == [] and f"{agent['Label']}.plist" != name:
        found.append(f"Label: the file would be {agent['Label']}.plist")
    return found
