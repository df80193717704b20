"""Processes of the tests that begin where the imports end.

A hub, a run of `hubbub` and a server of the SDK each import for a second and more before they do anything, and the
tests start thousands. `server.py` imports all that once and forks each process from there. What it starts is a process
as any other: it has a pid, an environment, pipes, a directory and an exit status of its own, takes signals, and dies of
`kill -9`. Only its parent is another one, and `/proc/PID/cmdline` is the fork server's.

`start` and `run` start what can be forked, and all else as `anyio` does; `popen` is `start` without an event loop;
`quick` is the command of a server, changed to one that forks; a program with `environment_with_forks` uses the same
fork server. What tests the start of a command itself asks for the
fixture `started_for_real`.
"""

from .client import REAL, Real, command_of_script, environment_with_forks, popen, quick, run, start

__all__ = ["REAL", "Real", "command_of_script", "environment_with_forks", "popen", "quick", "run", "start"]
