"""Settings of approvals: rules and presets, where they can be written, and how a wrong one is named."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hubbubd.conditions import Condition
from hubbubd.config import HubSettings, load_settings
from hubbubd.config.hub import LIVE_SETTINGS
from hubbubd.config.sections.approvals import (
    APPROVALS,
    MAX_RULES,
    Action,
    ApprovalRule,
    ApprovalSettings,
    parse_approvals,
)
from hubbubd.errors import ConfigError

Load = Callable[..., HubSettings]

DELETES = """
[approvals]
default = "allow"
expires_after_s = 3600

[[approvals.rules]]
name = "deletes"
servers = ["github", "jira-*"]
tools = ["delete_*", "*_remove"]
when = "args.repo != 'sandbox' && caller != 'local'"
action = "ask"
needed = 2
not_by_caller = true
approvers = ["ada", "ben"]
edit = false
remember = ["90s", "30m", "1h", "1d", 60, 1.5]
message = "Deletes need two people."

[[approvals.rules]]
action = "deny"
"""


def test_a_hub_without_the_table_asks_about_nothing(load: Load) -> None:
    settings = load().approvals
    assert settings == ApprovalSettings()
    assert (settings.default, settings.confirm, settings.rules) == (Action.ALLOW, (), ())


def test_a_rule_has_all_that_the_file_says(load: Load) -> None:
    settings = load(DELETES).approvals
    first, second = settings.rules
    assert settings.expires_after_s == 3600
    assert first == ApprovalRule(
        name="deletes",
        servers=("github", "jira-*"),
        tools=("delete_*", "*_remove"),
        when=Condition("args.repo != 'sandbox' && caller != 'local'"),
        action=Action.ASK,
        needed=2,
        not_by_caller=True,
        approvers=("ada", "ben"),
        edit=False,
        remember=(90, 1800, 3600, 86_400, 60, 1.5),
        message="Deletes need two people.",
    )
    assert second == ApprovalRule(name="rule 2", action=Action.DENY)
    assert first.preset == ""


def test_the_same_file_gives_equal_settings_so_that_only_changes_are_applied(load: Load) -> None:
    assert load(DELETES) == load(DELETES)
    assert load(DELETES) != load(DELETES.replace("sandbox", "sandbox2"))
    assert APPROVALS in LIVE_SETTINGS


@pytest.mark.parametrize(
    ("environ", "default", "confirm"),
    [
        ({"HUBBUBD_APPROVALS__DEFAULT": "deny"}, Action.DENY, ("file",)),
        ({"HUBBUBD_APPROVALS__CONFIRM": "writes"}, Action.ASK, ("writes",)),
        ({"HUBBUBD_APPROVALS__CONFIRM": '["Bash", "Write"]'}, Action.ASK, ("Bash", "Write")),
        ({"HUBBUBD_APPROVALS__RULES": "[]"}, Action.ASK, ("file",)),
    ],
)
def test_the_environment_has_each_setting(
    load: Load, environ: dict[str, str], default: Action, confirm: tuple[str, ...]
) -> None:
    settings = load('[approvals]\ndefault = "ask"\nconfirm = ["file"]', **environ).approvals
    assert (settings.default, settings.confirm) == (default, confirm)


RULE = '[[approvals.rules]]\nname = "a"\n'
SECOND = f"{RULE}\n[[approvals.rules]]\n# what is deleted\nname = 'deletes'\n"

WRONG = [
    ('[approvals]\ndefault = "aks"', r'approvals\.default: must be "allow", "ask" or "deny"'),
    ('[approvals]\nconfirm = "Bash"', r'approvals\.confirm: must be "writes", or a list of patterns'),
    ("[approvals]\nconfirm = true", r"approvals\.confirm: must be a list"),
    ("[approvals]\nexpires_after_s = 0", r"approvals\.expires_after_s: "),
    ("[approvals]\nexpire_after_s = 1", r"approvals\.expire_after_s: unknown key; did you mean 'expires_after_s'"),
    ("approvals = 1", r"approvals: must be a table"),
    ("[aprovals]", r"aprovals: unknown key; did you mean 'approvals'"),
    ("[hub]\napprovals = {}", r"hub\.approvals: in a file, this is the table \[approvals\]"),
    ('[approvals]\nrules = "x"', r"approvals\.rules: must be a list"),
    ('[approvals]\nrules = ["x"]', r"approvals\.rules: rule 1: must be a table"),
    ('[approvals]\nrules = [{ name = "x", when = "args." }]', r"rules: rule 1, 'x': when: 1:6: Syntax error"),
    (f"{SECOND}tool = ['x']", r"rules: rule 2, 'deletes', line 7: tool: unknown key; did you mean 'tools'"),
    (f"{SECOND}tools = 'x'", r"rules: rule 2, 'deletes', line 7: tools: must be a list"),
    (f"{SECOND}servers = []", r"rule 2, 'deletes', line 7: servers: "),
    (f"{SECOND}\n\nwhen = 'repo == 1'", r"rule 2, 'deletes', line 9: when: 1:1: undeclared reference to 'repo'"),
    (f"{SECOND}when = 'caller'", r"rule 2, 'deletes', line 7: when: is of type string"),
    (f"{SECOND}when = 1", r"rule 2, 'deletes', line 7: when: must be a text"),
    (f"{SECOND}when = ''", r"rule 2, 'deletes', line 7: when: "),
    (f"{SECOND}action = 'block'", r"line 7: action: must be \"allow\", \"ask\" or \"deny\""),
    (f"{SECOND}needed = 0", r"line 7: needed: "),
    (f"{SECOND}needed = 21", r"line 7: needed: "),
    (f"{SECOND}needed = 2\napprovers = ['ada']", r"rule 2, 'deletes', line 4: needed = 2, but approvers has 1"),
    (f"{SECOND}needed = 2\napprovers = ['ada', 'ada']", r"needed = 2, but approvers has 1"),
    (f"{SECOND}approvers = ['role:x']", r"line 7: approvers\.0: must be NAME, cert:NAME"),
    (
        f"{SECOND}approvers = ['oidc-role:x']",
        r"approvals: rule 'deletes': nobody can be 'oidc-role:x' without oidc_rol",
    ),
    (f"{SECOND}approvers = ['cert:x']", r"approvals: rule 'deletes': nobody can be 'cert:x' without tls_client_ca"),
    (f"{SECOND}remember = ['1 week']", r'line 7: remember\.0: must be a time such as "90s"'),
    (f"{SECOND}remember = ['1h', '31d']", r"line 7: remember\.1: must be a time .*at most 30 days"),
    (f"{SECOND}remember = [true]", r"line 7: remember\.0: must be a time"),
    (f"{SECOND}remember = [0]", r"line 7: remember\.0: must be a time"),
    (f"{RULE}{RULE}", r"approvals\.rules: line 4: rule 2 has the name 'a' of rule 1"),
    (f"{RULE}[[approvals.rules]]\nname = 'rule 3'\n[[approvals.rules]]", r"line 5: rule 3 has the name 'rule 3'"),
    ("[[approvals.rules]]\nname = 'confirm'", r"line 2: name: 'confirm' is the name of a rule that `confirm` makes"),
    ("[[approvals.rules]]\nname = 'confirm of x'", r"line 2: name: 'confirm of x' is the name of a rule"),
    ("[[approvals.rules]]\nname = ' x'", r"line 2: name: has characters that are not printed, or spaces around"),
    ("[[approvals.rules]]\n" * (MAX_RULES + 1), r"approvals\.rules: .*at most 1000"),
    ('[servers.x]\ncommand = "x"\nconfirm = "all"', r'servers\.x\.confirm: must be "writes", or a list'),
]


@pytest.mark.parametrize(("text", "where"), WRONG)
def test_what_is_wrong_is_named_with_its_rule_and_its_line(load: Load, text: str, where: str) -> None:
    with pytest.raises(ConfigError, match=rf"hub\.toml: .*{where}" if "approvals: " not in where else where):
        load(text)


def test_a_wrong_rule_of_the_environment_is_named_too(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"HUBBUBD_APPROVALS__\*: rules\.0\.when: 1:6: Syntax error"):
        load(HUBBUBD_APPROVALS__RULES='[{"when": "args."}]')


def test_more_people_than_are_named_may_be_needed_where_a_name_stands_for_several(load: Load) -> None:
    oidc = '[hub]\noidc_issuer = "https://id.example"\noidc_audience = "x"\noidc_roles_claim = "r"\n'
    for approver in ("oidc-role:release", "oidc:*@example.org"):
        assert load(f"{oidc}{RULE}needed = 2\napprovers = [{approver!r}]").approvals.rules[0].needed == 2
    with pytest.raises(ConfigError, match="needed = 2"):
        load(f"{oidc}{RULE}needed = 2\napprovers = ['oidc:ada']")


def test_rules_are_in_one_file_because_their_order_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(RULE)
    second.write_text('[approvals]\ndefault = "ask"')
    files = ["--config", str(first), "--config", str(second)]
    approvals = load_settings(files, {}).hub.approvals
    assert ([rule.name for rule in approvals.rules], approvals.default) == (["a"], Action.ASK)
    second.write_text(RULE.replace('"a"', '"b"'))
    with pytest.raises(ConfigError, match=r"second\.toml: approvals\.rules: are also in .*first\.toml; keep all"):
        load_settings(files, {})


def test_a_server_says_by_a_word_or_by_patterns_what_a_person_confirms(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    for written, read in (('"writes"', ("writes",)), ('["a*", "writes"]', ("a*", "writes")), ("[]", ())):
        path.write_text(f'[servers.x]\ncommand = "x"\nconfirm = {written}\n')
        (config,) = load_settings(["--config", str(path)], {}).servers
        assert config.confirm == read


def test_a_document_with_rules_to_try_is_read_by_itself() -> None:
    assert parse_approvals(f"[hub]\nnot = 'read'\n{DELETES}", "FILE").rules[0].name == "deletes"
    for text, problem in [
        ("[hub]", r"FILE: hub: unknown key"),
        ("approvals = 1", "FILE: approvals: must be a table"),
        ("[approvals", "FILE: is not valid TOML"),
        ("[approvals]\nrule = 1", r"FILE: rule: unknown key; did you mean 'rules'"),
        ("[[rules]]\nname = 'a'\n[[rules]]\nneeded = 0", r"FILE: approvals\.rules: rule 2, line 4: needed: "),
        (f"{SECOND}when = '('", r"FILE: approvals\.rules: rule 2, 'deletes', line 7: when: "),
    ]:
        with pytest.raises(ConfigError, match=problem):
            parse_approvals(text, "FILE")


@pytest.mark.usefixtures("processes")
def test_the_library_of_conditions_is_imported_by_the_first_condition_only(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    program = (
        "import sys; from hubbubd.config import load_settings; "
        f"load_settings(['--config', {str(path)!r}], {{}}); print('cel_expr_python' in sys.modules)"
    )

    def is_imported(text: str) -> str:
        path.write_text(text)
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.strip()

    assert is_imported(f'[approvals]\nconfirm = "writes"\n{RULE}tools = ["delete_*"]') == "False"
    assert is_imported(f"{RULE}when = 'true'") == "True"
