"""Which values of a server are secrets that should not stand in a file, and why: by name, form, or randomness."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, cast

MIN_SECRET_CHARS: Final = 8
"""Characters of the shortest secret that is recognised by anything but its name."""

MIN_RANDOM_CHARS: Final = 20
MIN_RANDOM_BITS_PER_CHAR: Final = 3.5
"""A text of so many characters, with so much entropy for each of them in bits, is random rather than written."""

# Words of a name, as `_` and changes of case divide it.
_SECRET_WORDS: Final = frozenset(
    {
        *("token", "secret", "password", "passwd", "passphrase", "pass", "pwd", "apikey", "credential", "credentials"),
        *("authorization", "cookie", "pat", "auth", "bearer", "dsn", "jwt"),
    }
)
_SECRET_PAIRS: Final = frozenset(
    {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key")}
)
_HARMLESS_LAST_WORDS: Final = frozenset(
    {"file", "path", "url", "uri", "type", "name", "id", "dir", "host", "scheme", "env"}
)
"""Words at a name's end that make it about a secret, not the secret: TOKEN_FILE, AUTH_TYPE."""

# Values that are no secrets, whatever they are called.
_PLAIN: Final = re.compile(r"true|false|yes|no|on|off|none|null|[0-9]+|basic|oauth2?|bearer", re.IGNORECASE)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PREFIXES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ghp_", "gho_", "ghs_", "ghu_", "github_pat_"), "a token of GitHub"),
    "glpat-": "a token of GitLab",
    **dict.fromkeys(("sk-", "sk_live_", "sk_test_", "rk_live_"), "an API key"),
    **dict.fromkeys(("xoxb-", "xoxp-", "xapp-", "xoxa-"), "a token of Slack"),
    **dict.fromkeys(("AKIA", "ASIA"), "a key of AWS"),
    "AIza": "a key of Google",
    "eyJ": "a JWT",
    "hbt_": "a token of Hubbub",
    "npm_": "a token of npm",
    "pypi-": "a token of PyPI",
    "-----BEGIN": "a private key",
}
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/=_-]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PASSWORD_IN_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@", re.IGNORECASE)
_OPTION: Final = re.compile(r"(--?[A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_REFERENCE: Final = re.compile(r"(?<!\$)\$\{")

SpecPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret in a spec. The text at `path` is `before`, which is no secret, and then the secret.

    `value` is the secret itself, `name` says what it is for, and `why` how it was recognised.
    """

    path: SpecPath
    name: str
    value: str
    why: str
    before: str = ""

    @property
    def where(self) -> str:
        """The place in words, without the secret: `env API_KEY`, `args token`, or `url` alone."""
        key, *rest = self.path
        return f"{key} {self.name}" if key != "url" and rest else str(key)


def find_secrets(spec: Mapping[str, Any]) -> list[Secret]:
    """Return the secrets of a spec in the hub's form, unescaped. A text with a reference is no secret."""
    return [
        *_find_secrets_in_table(spec, "env"),
        *_find_secrets_in_table(spec, "headers"),
        *_find_secrets_in_args(spec),
        *_find_secrets_in_url(spec),
    ]


def find_prompted_paths(spec: Mapping[str, Any], ids: Collection[str]) -> list[SpecPath]:
    """Return the paths of the texts in a spec that contain a prompt (`InputPrompt`) with one of these ids."""
    prompts = [f"${{input:{each}}}" for each in ids]

    def has_prompt(text: object) -> bool:
        """Return whether a value is a text that contains one of the prompts."""
        return isinstance(text, str) and any(prompt in text for prompt in prompts)

    paths: list[SpecPath] = [("url",)] if has_prompt(spec.get("url")) else []
    paths += [
        ("args", number) for number, text in enumerate(cast("Sequence[str]", spec.get("args", ()))) if has_prompt(text)
    ]
    for key in ("env", "headers"):
        paths += [
            (key, name) for name, text in cast("Mapping[str, str]", spec.get(key, {})).items() if has_prompt(text)
        ]
    return paths


def make_prompted_secret(spec: Mapping[str, Any], path: SpecPath) -> Secret:
    """Return the text at a path of a spec as a secret."""
    value: Any = spec
    for part in path:
        value = value[part]
    name = str(path[-1]) if path[0] != "args" else f"argument {cast('int', path[1]) + 1}"
    return Secret(path=path, name=name, value=unescape(str(value)), why="is asked for as a secret")


def replace_secret(spec: Mapping[str, Any], secret: Secret, reference: str) -> dict[str, Any]:
    """Return a spec with a reference in place of a secret."""
    key, *rest = secret.path
    value = secret.before + reference
    if not rest:
        return {**spec, str(key): value}
    if key == "args":
        args = list(cast("Sequence[str]", spec["args"]))
        args[cast("int", rest[0])] = value
        return {**spec, "args": args}
    return {**spec, str(key): {**spec[str(key)], str(rest[0]): value}}


def find_secret_reason(name: str, value: str) -> str | None:
    """Return why the value with a name is taken for a secret; None if it is not."""
    if not value or _REFERENCE.search(value):
        return None
    bare = re.sub(r"^(bearer|basic|token)\s+", "", value.strip(), flags=re.IGNORECASE)
    for prefix, what in _PREFIXES.items():
        if bare.startswith(prefix) and len(bare) > len(prefix) + MIN_SECRET_CHARS:
            return f"begins like {what}"
    if _PASSWORD_IN_URL.search(value):
        return "has a password in a url"
    if _has_secret_name(name) and not _PLAIN.fullmatch(bare) and not _is_path_or_address(value):
        return "is named like a secret"
    if is_random(bare):
        return "looks random"
    return None


def is_random(value: str) -> bool:
    """Return whether a text looks generated by a machine: long, with mixed characters, and without a pattern."""
    if (
        len(value) < MIN_RANDOM_CHARS
        or not _RANDOM.fullmatch(value)
        or _UUID.fullmatch(value)
        or _is_path_or_address(value)
    ):
        return False
    digits = sum(each.isdigit() for each in value)
    if not digits or digits == len(value) or max(map(len, re.split(r"[0-9+/=_-]+", value))) > MIN_RANDOM_CHARS // 2 + 2:
        return False  # words, or a number
    if all(part.isalpha() or part.isdigit() for part in re.split(r"[+/=_-]+", value) if part):
        return False  # words and numbers
    counts = Counter(value)
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values())
    return bits >= MIN_RANDOM_BITS_PER_CHAR


def _has_secret_name(name: str) -> bool:
    """Return whether a name has a word for a secret, and does not end in one of _HARMLESS_LAST_WORDS."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _HARMLESS_LAST_WORDS:
        return False
    pairs = pairwise(words)
    return (
        not _SECRET_WORDS.isdisjoint(words)
        or not _SECRET_PAIRS.isdisjoint(pairs)
        or (words[-1] == "key" and "public" not in words)
    )


def _is_path_or_address(value: str) -> bool:
    """Return whether a text begins like a path or a web address; passwords in addresses are looked for before."""
    return value.startswith(("/", "./", "../", "~/", "http://", "https://")) or value[1:3] in (":\\", ":/")


def _find_secrets_in_table(spec: Mapping[str, Any], key: str) -> Iterator[Secret]:
    """Yield the secrets of a table of the spec, `env` or `headers`."""
    for name, value in cast("Mapping[str, str]", spec.get(key, {})).items():
        if why := find_secret_reason(name, value):
            yield Secret(path=(key, name), name=name, value=unescape(value), why=why)


def _find_secrets_in_args(spec: Mapping[str, Any]) -> Iterator[Secret]:
    """Yield the secrets among the arguments: `--token VALUE`, `--token=VALUE`, and values without a name."""
    named = ""  # the option before, if its value is the next argument
    for number, arg in enumerate(cast("Sequence[str]", spec.get("args", ()))):
        option = _OPTION.fullmatch(arg)
        name, value, before = named, arg, ""
        if option is not None:
            named = "" if option[2] is not None else option[1]
            if option[2] is None:
                continue
            name, value, before = option[1], option[2], f"{option[1]}="
        else:
            named = ""
        if why := find_secret_reason(name, value):
            plain = name.lstrip("-") or f"argument {number + 1}"
            yield Secret(path=("args", number), name=plain, value=unescape(value), why=why, before=before)


def _find_secrets_in_url(spec: Mapping[str, Any]) -> Iterator[Secret]:
    """Yield the whole query of the url, as one secret, if any value in it is a secret."""
    head, mark, query = str(spec.get("url", "")).partition("?")
    for pair in query.split("&") if mark else []:
        name, _, value = pair.partition("=")
        if why := find_secret_reason(name, value):
            yield Secret(path=("url",), name="url", value=unescape(query), why=f"{name} {why}", before=f"{head}?")
            return


def unescape(text: str) -> str:
    """Undo the escape of a configured text without references: `$${` stands for a plain `${`."""
    return text.replace("$${", "${")
