"""The results of `skills/list`, which the SDK does not have (SEP-2640).

Only what hosts need to take an entry at all is asked for. Digests, sizes and names are for hosts to judge.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

SKILLS_LIST: Final = "skills/list"


class _SkillFile(BaseModel):
    """A file of a skill, as a resource."""

    uri: Annotated[str, Field(min_length=1)]


class _SkillEntry(BaseModel):
    """An entry of the list: one skill."""

    uri: Annotated[str, Field(min_length=1)]
    frontmatter: dict[str, Any]
    resources: list[_SkillFile] | Literal["dynamic"]


class ListSkillsResult(BaseModel):
    """A page of `skills/list`."""

    model_config = ConfigDict(strict=True)

    skills: list[_SkillEntry]
    next_cursor: Annotated[str | None, Field(alias="nextCursor")] = None
