"""The API is changed only by adding to it: `protos/hubbub_v1.binpb` has it as it was agreed on."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

ROOT = Path(__file__).parents[2]
AGREED = ROOT / "protos/hubbub_v1.binpb"
PROTOS = sorted((ROOT / "protos/hubbub/v1").glob("*.proto"))


@pytest.fixture
def copy(tmp_path: Path, processes: None) -> Path:
    """The protos, to be changed."""
    shutil.copytree(ROOT / "protos/hubbub", tmp_path / "protos/hubbub", ignore=shutil.ignore_patterns("*.py*", "__*"))
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    return tmp_path


def breaking(copy: Path) -> str:
    """What breaks callers of the API as it was agreed on; empty when nothing does."""
    done = subprocess.run(
        ["buf", "breaking", "--against", str(AGREED)],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode == 0) == (not done.stdout), done.stderr
    return done.stdout


def changed(copy: Path, name: str, before: str, after: str) -> Path:
    """The protos with one change."""
    file = copy / "protos/hubbub/v1" / name
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))
    return copy


def test_the_agreed_api_is_that_of_the_protos() -> None:
    agreed = FileDescriptorSet.FromString(AGREED.read_bytes())
    names = [file.name for file in agreed.file if file.name.startswith("hubbub/")]
    assert sorted(names) == [str(path.relative_to(ROOT / "protos")) for path in PROTOS]


def test_as_it_is_nothing_breaks(copy: Path) -> None:
    assert breaking(copy) == ""


def test_a_field_may_be_added(copy: Path) -> None:
    more = "  // A new field.\n  string new_field = 99;\n}\n"
    assert breaking(changed(copy, "task.proto", "  string defect = 13;\n}\n", "  string defect = 13;\n" + more)) == ""


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("task.proto", "  string defect = 13;\n", ""),
        ("task.proto", "string defect = 13;", "string flaw = 13;"),
        ("task.proto", "string defect = 13;", "bytes defect = 13;"),
        ("task.proto", "string defect = 13;", "string defect = 14;"),
        ("task.proto", "  rpc GetTask(GetTaskRequest) returns (GetTaskResponse);\n", ""),
        ("task.proto", "  TASK_ROLE_CLIENT = 2;\n", ""),
        ("common.proto", 'go_package = "', 'go_package = "other/'),
    ],
    ids=["removed", "renamed", "of another type", "renumbered", "an RPC less", "a value less", "another package"],
)
def test_what_callers_rely_on_may_not_change(copy: Path, name: str, before: str, after: str) -> None:
    assert name in breaking(changed(copy, name, before, after))


def test_every_field_that_holds_json_says_so_and_no_other_does() -> None:
    """A `bytes` field holds a JSON document, but for the chunks of a backup and the status of a call that failed."""
    plain: list[str] = []
    for path in PROTOS:
        for line in path.read_text().splitlines():
            if re.match(r"\s*(repeated )?bytes ", line) and "(json_document) = true" not in line:
                plain.append(line.split()[1])
            assert "json_document) = true" not in line or re.match(r"\s*(repeated )?bytes ", line)
    assert plain == ["chunk", "failed"]


def test_no_field_of_the_api_is_a_number_of_seconds_or_milliseconds() -> None:
    agreed = FileDescriptorSet.FromString(AGREED.read_bytes())
    own = [message for file in agreed.file if file.name.startswith("hubbub/") for message in file.message_type]
    found = [(name, field) for message in own for name, field in fields_of(message)]
    assert [name for name, field in found if is_number_of_time(field)] == []
    assert {field.type_name for _, field in found if field.name.endswith("_at")} == {".google.protobuf.Timestamp"}


def fields_of(message: DescriptorProto) -> Iterator[tuple[str, FieldDescriptorProto]]:
    """The fields of a message and of those inside it."""
    yield from ((f"{message.name}.{field.name}", field) for field in message.field)
    for inner in message.nested_type:
        yield from fields_of(inner)


def is_number_of_time(field: FieldDescriptorProto) -> bool:
    rate = field.name.endswith("_per_s")
    return field.name.endswith(("_s", "_ms", "_seconds")) and not rate


def test_every_file_says_what_the_code_of_other_languages_is_called() -> None:
    for path in PROTOS:
        options = set(re.findall(r"^option (\w+)", path.read_text(), re.MULTILINE))
        assert options == {
            "csharp_namespace",
            "go_package",
            "java_multiple_files",
            "java_outer_classname",
            "java_package",
            "objc_class_prefix",
        }


def test_every_list_and_every_watch_has_the_same_shape() -> None:
    agreed = FileDescriptorSet.FromString(AGREED.read_bytes())
    asked = {m.name: {f.name: f.number for f in m.field} for file in agreed.file for m in file.message_type}
    lists = {name: fields for name, fields in asked.items() if re.fullmatch(r"List\w+Request", name)}
    watches = {name: fields for name, fields in asked.items() if "resume_token" in fields and name.endswith("Request")}
    assert len(lists) == 9
    assert len(watches) == 5
    for fields in lists.values():
        assert fields == {"filter": 1, "page_size": 2, "page_token": 3, "order": 4}
    for name, fields in watches.items():
        assert fields == {"filter": 1, "resume_token": 2, "allow_batches": 3}
        assert asked[name.removesuffix("Request") + "Response"]["batch"] == 9, (
            "the hub puts them together without a parser"
        )
