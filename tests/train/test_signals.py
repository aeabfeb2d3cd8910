"""Signals noted and handlers put back."""

import os
import signal
import threading

import pytest

from steadyrnn.train.signals import Interrupted, Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted(number: int) -> None:
    with Signals() as signals:
        os.kill(os.getpid(), number)
        assert signals.received == number


def test_the_second_signal_ends_at_once() -> None:
    with Signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_what_comes_after_a_warning_is_the_first_request_to_end() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.received == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Signals():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_inactive_signals_change_no_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Signals(active=False):
        assert signal.getsignal(signal.SIGINT) == before


def test_another_thread_may_train() -> None:
    seen: list[int | None] = []

    def work() -> None:
        with Signals() as signals:
            seen.append(signals.received)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_knows_its_exit_code(number: int, code: int) -> None:
    error = Interrupted(number, step=12)
    assert error.exit_code == code
    assert "after 12 steps" in str(error)
