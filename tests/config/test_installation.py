"""The command that adds packages is one that works in the environment it is for."""

import importlib.util
from pathlib import Path

import pytest

from hubbubd.process.installation import make_extra_install_command, make_install_command


def test_pipx_adds_to_an_environment_of_pipx(tmp_path: Path) -> None:
    environment = tmp_path / "hubbub"
    environment.mkdir()
    (environment / "pipx_metadata.json").touch()
    assert make_install_command(["asyncpg>=0.32"], environment) == "pipx inject hubbub 'asyncpg>=0.32'"


def test_uv_adds_to_an_environment_of_uv(tmp_path: Path) -> None:
    (tmp_path / "uv-receipt.toml").touch()
    assert make_install_command(["a"], tmp_path) == f"uv pip install --python {tmp_path}/bin/python a"


def test_pip_adds_to_any_other_environment_and_uv_to_one_without_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make_install_command(["a"], tmp_path) == f"{tmp_path}/bin/python -m pip install a"
    monkeypatch.setattr("hubbubd.process.installation.find_spec", lambda name: None)
    assert make_install_command(["a"], tmp_path) == f"uv pip install --python {tmp_path}/bin/python a"


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("conditions", ("cel_expr_python",)),
        ("connect", ("connectrpc",)),
        ("postgres", ("asyncpg",)),
        ("fleet", ("asyncpg",)),
        ("telemetry", ("opentelemetry.sdk",)),
    ],
)
def test_the_command_names_packages_of_an_index_and_never_hubbub(extra: str, modules: tuple[str, ...]) -> None:
    command = make_extra_install_command(extra)
    assert "hubbub[" not in command
    assert all(module.partition(".")[0].replace("_", "-") in command for module in modules)
    assert all(importlib.util.find_spec(module) for module in modules)
