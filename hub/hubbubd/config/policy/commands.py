"""Which commands a stdio server added over the API may start. Starting an interpreter would mean arbitrary code.

An entry of `allow_commands` names a command and what it may get: arguments by position, names of variables, working
directories. Commands are resolved once, when the hub starts, so that later changes of PATH or links do not count.
"""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from hubbubd.config.servers.server import ServerConfig
from hubbubd.errors import PermissionDenied

REST_PATTERN: Final = "**"
"""The last pattern of `args` may be this: it matches any number of further arguments."""

POWERFUL_VARIABLES: Final = (
    # The shell, and what programs find and start.
    *(
        "PATH",
        "HOME",
        "ENV",
        "IFS",
        "PS4",
        "SHELL",
        "SHELLOPTS",
        "BASHOPTS",
        "CDPATH",
        "GLOBIGNORE",
        "FPATH",
        "PROMPT*",
    ),
    *("BASH_*", "ZDOTDIR", "KSH_*", "TMPDIR", "TMP", "TEMP", "BROWSER", "EDITOR", "VISUAL", "PAGER", "*_PAGER"),
    *("LESS*", "MANPAGER", "*EDITOR", "XDG_*", "HUBBUB*", "PKG_CONFIG*", "MAKE*", "CC", "CXX"),
    # The dynamic linker and the C library: what these ignore for setuid programs, and what sudo removes.
    *("LD_*", "DYLD_*", "_RLD*", "LIBPATH", "SHLIB_PATH", "LDR_*", "GLIBC_*", "MALLOC_*", "GCONV_PATH", "GETCONF_DIR"),
    *("LOCPATH", "NLSPATH", "PATH_LOCALE", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_*", "NIS_PATH"),
    *("TERMINFO*", "TERMCAP", "TERMPATH", "TZDIR", "KRB5*", "KRB_*", "KRBCONFDIR", "KRBTKFILE", "VAR_ACE", "USR_ACE"),
    *("DLC_ACE", "ASAN_*", "LSAN_*", "TSAN_*", "UBSAN_*", "MSAN_*", "GCOV_*", "LLVM_PROFILE_FILE", "FAKECHROOT*"),
    # What languages load and run.
    *(
        "PYTHON*",
        "VIRTUAL_ENV",
        "UV_*",
        "PIP_*",
        "PIPX_*",
        "POETRY_*",
        "CONDA_*",
        "NODE_*",
        "NPM_*",
        "YARN_*",
        "PNPM_*",
    ),
    *("ELECTRON_*", "DENO_*", "BUN_*", "COREPACK_*", "PERL*", "RUBY*", "GEM_*", "BUNDLE_*", "PHP*", "LUA_*", "TCL*"),
    *(
        "JAVA_*",
        "_JAVA_*",
        "JDK_*",
        "JVM_*",
        "CLASSPATH",
        "MAVEN_*",
        "GRADLE_*",
        "CATALINA_*",
        "DOTNET_*",
        "ASPNETCORE_*",
    ),
    *("COMPLUS_*", "COR*_PROFILER*", "MONO_*", "R_*", "RSTUDIO_*", "JULIA_*", "ERL_*", "ERLC_*", "ELIXIR_*", "MIX_*"),
    *(
        "GO*",
        "CGO_*",
        "CARGO*",
        "RUST*",
        "GUILE_*",
        "OCAML*",
        "CAML*",
        "OPAM*",
        "GHC*",
        "HASKELL*",
        "SBCL_*",
        "RACKET*",
    ),
    *("PLTADDONDIR", "OCTAVE_*", "MATLAB*", "QT_*", "GTK_*", "GIO_*", "GST_*", "FONTCONFIG_*", "MAGICK_*"),
    # TLS trust, credentials, proxies, and remote hosts.
    *("SSL*", "OPENSSL_*", "GNUTLS_*", "NSS_*", "*_CA_BUNDLE", "*_CA_FILE", "*_CA_CERT*", "*_CA_PATH", "CA_BUNDLE"),
    *("*_CERT_FILE", "*_CERT_DIR", "*_CERT_PATH", "*_TLS_VERIFY", "*_CACERT", "*_PROXY", "CURL_*", "WGETRC", "NETRC"),
    *("GIT_*", "SSH_*", "GPG_*", "GNUPGHOME", "DOCKER_*", "BUILDKIT_*", "CONTAINER_*", "PODMAN_*", "KUBE*", "HELM_*"),
    *("AWS_*", "AZURE_*", "GOOGLE_*", "GCLOUD_*", "CLOUDSDK_*", "BOTO*", "VAULT_*", "TF_*", "ANSIBLE_*"),
    *("PG*", "PSQL*", "MYSQL_*", "SQLITE_*", "ODBC*", "ORACLE_*", "TNS_*", "REDISCLI_*", "MC_*", "DBUS_*", "RSYNC_*"),
)
"""Variables that change what a program loads, runs or trusts; only an entry without wildcards allows them."""


# `..` as a path component, also after other text (`--root=..`, `a:../b`).
_UPWARDS: Final = re.compile(r"(?<![\w.-])\.\.(/|$)")


def _check_command(text: str) -> str:
    """Return the command. Raises ValueError if it is neither a name nor an absolute path."""
    if not text or ("/" in text and not text.startswith("/")):
        raise ValueError(f"{text!r} is neither a plain name nor an absolute path")
    return text


class AllowedCommand(BaseModel):
    """An entry of `allow_commands`; a plain string is a command without arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[str, AfterValidator(_check_command)]
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    cwd: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_name(cls, value: Any) -> Any:
        """Turn a plain string into a table with that command. Raises ValueError for another type."""
        if not isinstance(value, str | dict | cls):
            raise ValueError("must be a command, or a table with one")
        return {"command": value} if isinstance(value, str) else cast("Any", value)

    @model_validator(mode="after")
    def _check_rest_is_last(self) -> Self:
        """Raise ValueError if REST_PATTERN is anywhere but at the end of `args`."""
        if REST_PATTERN in self.args[:-1]:
            raise ValueError(f"{REST_PATTERN!r} stands for the rest of the arguments: nothing can follow it")
        return self

    def find_obstacle(self, config: ServerConfig) -> str | None:
        """Return why arguments, variables or directory are not allowed, without any value; None when allowed."""
        if not _matches_args(self.args, config.args):
            return f"not with these arguments: args = {list(self.args)}"
        for name in config.env:
            if not _matches_variable(self.env, name):
                return f"not with the variable {name!r}: env = {list(self.env)}"
        if config.cwd and config.cwd not in self.cwd:
            return f"not in this directory: cwd = {list(self.cwd)}"
        return None


@dataclass(frozen=True, slots=True)
class _ResolvedRule:
    """An entry of `allow_commands` with the program that its command was when the hub started.

    `path` is empty if there was none; `real_path` is `path` with all links followed, at that time.
    """

    rule: AllowedCommand
    path: str
    real_path: str

    @classmethod
    def from_rule(cls, rule: AllowedCommand, search_path: str) -> "_ResolvedRule":
        """Look up the command of an entry in the directories of `search_path`."""
        path = rule.command
        if not path.startswith("/"):
            # Relative entries of PATH would depend on the working directory.
            absolute_directories = os.pathsep.join(
                each for each in search_path.split(os.pathsep) if each.startswith("/")
            )
            path = (shutil.which(path, path=absolute_directories) if absolute_directories else None) or ""
        return cls(rule, path, os.path.realpath(path) if path else "")

    def find_obstacle(self, config: ServerConfig) -> str | None:
        """Return why the entry does not allow a server; None if it does."""
        if not self.path:
            return "it was not found on PATH when the hub started"
        if os.path.realpath(self.path) != self.real_path:
            return f"{self.path} is not the file that it was when the hub started"
        return self.rule.find_obstacle(config)


class CommandRules:
    """The allowed commands, looked up in `search_path` (directories separated by colons)."""

    def __init__(self, rules: Iterable[AllowedCommand], search_path: str) -> None:
        self._resolved = [_ResolvedRule.from_rule(rule, search_path) for rule in rules]

    @property
    def missing_commands(self) -> list[str]:
        """The commands that were not found or are not executable."""
        return [each.rule.command for each in self._resolved if not (each.path and os.access(each.path, os.X_OK))]

    def find_allowed_program(self, config: ServerConfig) -> str:
        """Return the absolute path of a server's program, if allowed. Raises PermissionDenied (COMMAND_NOT_ALLOWED)."""
        candidates = [each for each in self._resolved if config.command in {each.rule.command, each.path}]
        obstacles: list[str] = []
        for each in candidates:
            obstacle = each.find_obstacle(config)
            if obstacle is None:
                return each.path
            obstacles.append(obstacle)
        problem = f"allows it, but {obstacles[0]}" if obstacles else "does not have it"
        raise PermissionDenied(
            f"the command {config.command!r} may not be started: allow_commands of the hub's configuration {problem}",
            reason="COMMAND_NOT_ALLOWED",
            metadata={"command": config.command or ""},
        )


def _matches_args(patterns: Sequence[str], args: Sequence[str]) -> bool:
    """Return whether arguments match patterns one by one; REST_PATTERN at the end matches any further ones."""
    if patterns and patterns[-1] == REST_PATTERN:
        patterns, args = patterns[:-1], args[: len(patterns) - 1]
    return len(patterns) == len(args) and all(map(_matches_arg, patterns, args))


def _matches_arg(pattern: str, arg: str) -> bool:
    """Return whether an argument matches. A wildcard matches neither an option nor a path with `..`."""
    if pattern == arg:
        return True
    is_safe = not _UPWARDS.search(arg) and (not arg.startswith("-") or pattern.startswith("-"))
    return is_safe and fnmatchcase(arg, pattern)


def _matches_variable(patterns: Iterable[str], name: str) -> bool:
    """Return whether a variable's name matches a pattern; one of POWERFUL_VARIABLES must be listed literally."""
    is_powerful = any(fnmatchcase(name.upper(), each) for each in POWERFUL_VARIABLES)
    return any(name == each or (not is_powerful and fnmatchcase(name, each)) for each in patterns)
