"""An upgrade of a fleet, as operators see and finish it."""

from dataclasses import replace

import pytest

from hubbub.v1 import fleet_pb2 as pb
from hubbubd.errors import FailedPrecondition
from hubbubd.members import MemberStatus, Schema
from hubbubd.runtime.diagnostics.findings import Severity

from .conftest import settle
from .fleet import Members
from .test_fleet import of
from .test_fleet_operations import api, findings


async def test_an_upgrade_is_finished_once_no_member_is_of_an_older_version(fleet: Members) -> None:
    await of(fleet, "a", "b", "c")
    fleet.database.schema = Schema(4, 3)
    for name in "ab":
        row = fleet.database.rows[name]
        row.member = replace(row.member, schema=4)
    await settle(2)
    one, old = fleet.running["a"], fleet.running["c"]
    seen = await api(one).get_fleet(pb.GetFleetRequest())
    assert (seen.schema, seen.required_schema, [each.schema for each in seen.members]) == (4, 3, [4, 4, 3])
    (found,) = [each for each in await findings(one) if each.about == "upgrade"]
    assert (found.severity, "at c, too" in str(found.advice)) == (Severity.WARN, True)
    with pytest.raises(FailedPrecondition, match="of an older version would be refused: c;") as refused:
        await api(one).finish_upgrade(pb.FinishUpgradeRequest())
    assert (refused.value.reason, refused.value.metadata) == ("MEMBERS_OUTDATED", {"members": "c"})
    await one.fleet.set_status(fleet.database.rows[old.name].member, MemberStatus.GONE)
    (found,) = [each for each in await findings(one) if each.about == "upgrade"]
    assert "hubbub fleet finish-upgrade" in str(found.advice)
    assert (await api(one).finish_upgrade(pb.FinishUpgradeRequest())).schema == 4
    assert [each for each in await findings(one) if each.about == "upgrade"] == []
    assert (await api(one).get_fleet(pb.GetFleetRequest())).required_schema == 4
