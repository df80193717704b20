"""Stories that the model of a request queue has to know the end of."""

from .test_queue_model import QueueModel


def test_a_clock_may_run_out_while_another_call_is_made() -> None:
    state = QueueModel()
    try:
        state.begin(slots=1, one_question=False)
        state.time_passes(seconds=1)
        state.server_goes_away()
        state.call(detached=False)
        state.same_id_again(number=0, how="start")
        state.time_passes(seconds=29)
        state.call(detached=False)
        assert state.calls[0].ended is None
        state.call(detached=False)
        assert [made.ended and made.ended.fault and made.ended.fault.code for made in state.calls] == [
            "CALL_TIMEOUT",
            None,
            None,
        ]
        state.every_call_tells_the_same_story()
        state.the_counts_are_right()
    finally:
        state.teardown()
