"""URIs of resources as hosts see them: they say which server a resource is of.

    ui://REST      ui://SERVER+REST             hosts show pages of this scheme alone (MCP Apps)
    skill://REST   skill://SERVER/REST          the last folder of a skill's URI is its name (skills)
    any other      hubbub://s/SERVER/URI

Each is the server's own with something put in, verbatim, and its scheme is written as the server writes it. So a
template stays a template of RFC 6570, and taking it out gives exactly what the server said. Servers of other hubs have
it several times. A server's name has neither `+` nor a slash, so each form has one reading.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

Json = dict[str, Any]

PREFIX: Final = "hubbub://s/"

MAX_CONTENT_DEPTH: Final = 8
"""How deep content is looked into: a message of a sampling request has results of tools, and these have content."""

_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_SERVER = re.compile(rf"hubbub://s/({_NAME})/")
_SEPARATORS: Final = {"ui": "+", "skill": "/"}
_KEPT_SCHEME = re.compile("(ui|skill)://", re.IGNORECASE | re.ASCII)
_SERVER_IN_SCHEME = re.compile(rf"(?:(ui://)({_NAME})\+|(skill://)({_NAME})/)", re.IGNORECASE | re.ASCII)

# No serializer escapes an ASCII letter unless it means to.
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")

_EXPRESSION = re.compile(r"\{[^{}]*\}")
_OPERATOR = re.compile(r"\{[+#./;?&]")

_PAGES: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Members of `_meta` that name a tool's page beside `ui.resourceUri`: an older one, and one of another convention."""

Rewrite = Callable[[str], str]


def add_prefix(server: str, uri: str) -> str:
    """Return the URI, or template, of a server's resource as hosts see it."""
    scheme = _KEPT_SCHEME.match(uri)
    if scheme is None:
        return f"{PREFIX}{server}/{uri}"
    return f"{scheme[0]}{server}{_SEPARATORS[scheme[1].lower()]}{uri[scheme.end() :]}"


def split_prefix(uri: str) -> tuple[str, str] | None:
    """Return the server, and the server's own URI, for a URI that hosts see; None for any other URI."""
    if (match := _SERVER.match(uri)) is not None:
        return match[1], uri[match.end() :]
    match = _SERVER_IN_SCHEME.match(uri)
    if match is None:
        return None
    return match[2] or match[4], (match[1] or match[3]) + uri[match.end() :]


def respell_for_host(server: str, subscribed_uri: str, host_spelling: str, uri: str) -> str:
    """Return a server's own `uri` as a host expects it that has subscribed to `subscribed_uri`.

    `host_spelling` is the subscribed URI as the host wrote it: the host gets that URI in the same spelling. A host that
    wrote it as the server does gets all other URIs as the server writes them; any other host gets them prefixed.
    """
    if uri == subscribed_uri:
        return host_spelling
    return uri if host_spelling == subscribed_uri else add_prefix(server, uri)


def is_page(uri: str) -> bool:
    """Return whether a URI, of a server or as hosts see it, is that of a page (`ui://`)."""
    return uri[:5].lower() == "ui://"


def find_page_uri(meta: object) -> str | None:
    """Return the URI of the page that the `_meta` of a tool names; None if it names none."""
    if not isinstance(meta, Mapping):
        return None
    members = cast("Json", meta)
    ui: object = members.get("ui")
    candidates = [cast("Json", ui).get("resourceUri")] if isinstance(ui, Mapping) else []
    candidates += (members.get(name) for name in _PAGES)
    return next((each for each in candidates if isinstance(each, str) and each), None)


def may_have_uris(document: bytes) -> bool:
    """Return whether a JSON document may have a place that `rewrite_uris` changes. False is certain, True is not."""
    names = b'uri"' in document or b'Uri"' in document or b'Template"' in document
    return names or (b"\\u00" in document and _ESCAPED_LETTER.search(document) is not None)


Spelling = Mapping[str, str]
"""The spellings of URIs that a host has used in its requests, by the server's own URI."""

USUAL_SPELLING: Final[Spelling] = MappingProxyType({})


def rewrite_uris(document: Mapping[str, Any], server: str, spellings: Spelling = USUAL_SPELLING) -> Json:
    """Return a result, or the params of a sampling request, with all of the server's URIs as hosts see them.

    Rewritten are the URIs of entries of lists, of skills and their files, of contents, of links and embedded resources
    wherever content is, of the user interface in `_meta`, and of what a round asks. URIs in `structuredContent`, in
    schemas or in text stay: nobody knows that they are URIs. The document itself is not changed.
    """
    return _UriRewriter(lambda uri: spellings.get(uri) or add_prefix(server, uri)).rewrite(document)


@dataclass(frozen=True, slots=True)
class _UriRewriter:
    """One pass over a document; `rewrite_uri` rewrites a URI. Other shapes than those of MCP stay as they are."""

    rewrite_uri: Rewrite

    def rewrite(self, document: Mapping[str, Any]) -> Json:
        """Return a copy of a document with all of its URIs rewritten."""
        rewritten = self._rewrite_ui({**document})
        for name in ("tools", "prompts"):
            self._change_each(rewritten, name, self._rewrite_ui)
        for name in ("resources", "contents"):
            self._change_each(rewritten, name, lambda each: self._rewrite_ui(self._rewrite_member(each, "uri")))
        self._change_each(
            rewritten, "resourceTemplates", lambda each: self._rewrite_ui(self._rewrite_member(each, "uriTemplate"))
        )
        self._change_each(rewritten, "skills", self._rewrite_skill)
        if isinstance(skill := rewritten.get("skill"), Mapping):
            rewritten["skill"] = self._rewrite_skill(cast("Json", skill))
        self._rewrite_content(rewritten, 0)
        self._change_each(rewritten, "messages", lambda each: self._rewrite_content({**each}, 0))
        self._rewrite_round(rewritten)
        return rewritten

    def _rewrite_round(self, rewritten: Json) -> None:
        """Rewrite the requests of a round (2026-07-28) in place: the messages of a sampling have content."""
        input_requests = rewritten.get("inputRequests")
        if not isinstance(input_requests, Mapping):
            return
        rewritten["inputRequests"] = {
            key: self._rewrite_request(each) for key, each in cast("Json", input_requests).items()
        }

    def _rewrite_request(self, value: object) -> object:
        """Return a request of a round with the URIs in its messages rewritten; what has no params stays as it is."""
        request = cast("Json", value) if isinstance(value, Mapping) else {}
        params = request.get("params")
        if not isinstance(params, Mapping):
            return cast("object", value)
        rewritten_params: Json = {**cast("Json", params)}
        self._change_each(rewritten_params, "messages", lambda each: self._rewrite_content({**each}, 0))
        return {**request, "params": rewritten_params}

    def _rewrite_skill(self, skill: Json) -> Json:
        """Return a skill with its URI, and those of its files, rewritten (SEP-2640); the digests of files stay."""
        rewritten = {**self._rewrite_member(skill, "uri")}
        self._change_each(rewritten, "resources", lambda each: self._rewrite_member(each, "uri"))
        return rewritten

    def _rewrite_content(self, holder: Json, depth: int) -> Json:
        """Rewrite a `content`, which is one block or a list of them, in place, and return its holder."""
        content = holder.get("content")
        if isinstance(content, Mapping):
            holder["content"] = self._rewrite_block(cast("Json", content), depth)
        else:
            self._change_each(holder, "content", lambda each: self._rewrite_block(each, depth))
        return holder

    def _rewrite_block(self, block: Json, depth: int) -> Json:
        """Return a block of content with its URIs rewritten, and those of the content within it."""
        match block.get("type"):
            case "resource_link":
                return self._rewrite_ui(self._rewrite_member(block, "uri"))
            case "resource" if isinstance(resource := block.get("resource"), Mapping):
                return self._rewrite_ui(
                    {**block, "resource": self._rewrite_ui(self._rewrite_member(cast("Json", resource), "uri"))}
                )
            case "tool_result" if depth < MAX_CONTENT_DEPTH:
                return self._rewrite_content({**block}, depth + 1)
            case _:
                return block

    def _rewrite_ui(self, owner: Json) -> Json:
        """Return an entry or result with the URI of its page rewritten (MCP Apps), in all of its spellings."""
        meta = owner.get("_meta")
        if not isinstance(meta, Mapping):
            return owner
        rewritten_meta = cast("Json", meta)
        for name in _PAGES:
            rewritten_meta = self._rewrite_member(rewritten_meta, name)
        if isinstance(ui := rewritten_meta.get("ui"), Mapping):
            rewritten_meta = {**rewritten_meta, "ui": self._rewrite_member(cast("Json", ui), "resourceUri")}
        return {**owner, "_meta": rewritten_meta}

    def _rewrite_member(self, owner: Json, name: str) -> Json:
        """Return an object with the URI in one of its members rewritten; as it is if that is no text."""
        value = owner.get(name)
        return {**owner, name: self.rewrite_uri(value)} if isinstance(value, str) else owner

    def _change_each(self, owner: Json, name: str, change: Callable[[Json], Json]) -> None:
        """Replace each object of the list in a member of `owner` by what `change` returns for it."""
        entries = owner.get(name)
        if isinstance(entries, list):
            owner[name] = [
                change(cast("Json", each)) if isinstance(each, Mapping) else each
                for each in cast("list[object]", entries)
            ]


def find_owners(
    uri: str, uris: Mapping[str, Collection[str]], templates: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """Return the servers that list this URI, sorted; if none does, the servers with a template that fits it.

    A host may request a server's own URI, which its model has copied out of some text. `uris` and `templates` are the
    lists of the servers, by the server's name.
    """
    listed = tuple(sorted(server for server, server_uris in uris.items() if uri in server_uris))
    return listed or tuple(
        sorted(
            name for name, server_uris in templates.items() if any(may_fit_template(uri, each) for each in server_uris)
        )
    )


def may_fit_template(uri: str, template: str) -> bool:
    """Return whether a URI may be an expansion of a template (RFC 6570).

    An expression stands for any text without a slash; if one of them has an operator, all stand for any text. The time
    is in proportion to the length of the URI for each expression, whatever a server writes.
    """
    literals = _EXPRESSION.split(template)
    if len(literals) == 1:
        return uri == template
    forbidden_char = "" if _OPERATOR.search(template) else "/"
    start, *middle, ending = literals
    position, end = len(start), len(uri) - len(ending)
    if position > end or not uri.startswith(start) or not uri.endswith(ending):
        return False
    # The first place of each literal is the right one: a later one leaves nothing to the next expression that an
    # earlier one would not.
    for literal in middle:
        literal_at = uri.find(literal, position, end)
        if literal_at < 0 or (forbidden_char and forbidden_char in uri[position:literal_at]):
            return False
        position = literal_at + len(literal)
    return not (forbidden_char and forbidden_char in uri[position:end])
