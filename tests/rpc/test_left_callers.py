"""What gRPC logs of callers that are gone."""

import logging

import grpc
import pytest
from grpc._cython.cygrpc import ExecuteBatchError  # pyright: ignore[reportMissingModuleSource, reportUnknownVariableType]

from hubbubd.rpc.server import is_fault


@pytest.mark.parametrize(
    ("problem", "logged"),
    [(ExecuteBatchError("Failed"), False), (grpc.aio.UsageError("wrong"), True), (None, True)],
)
def test_a_response_that_nobody_waits_for_is_no_fault_of_the_hub(problem: BaseException | None, logged: bool) -> None:
    about = None if problem is None else (type(problem), problem, None)
    record = logging.LogRecord("grpc._cython.cygrpc", logging.ERROR, __file__, 1, "raised in core", (), about)
    assert is_fault(record) is logged
