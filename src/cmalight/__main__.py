"""`cmalight` and `python -m cmalight`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

_interrupts: list[int] = []


def main() -> None:
    """Run the command, or say what to install for it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        _run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C while Python shuts down would print a traceback
        if _interrupts:
            # Here, and not by an exit code: Python may end itself by SIGINT, and libraries turn a Ctrl-C during their
            # import into errors of their own.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _interrupts.append(number)
    signal.default_int_handler(number, frame)


def _run() -> None:
    try:
        from cmalight.cli import command
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        if sys.argv[1:] == ["--version"]:
            from cmalight import __version__

            sys.stdout.write(f"cmalight {__version__}\n")
            return
        sys.stderr.write('cmalight: error: the command needs click: pip install "cmalight[bench]"\n')
        sys.exit(2)
    command(prog_name="cmalight")


if __name__ == "__main__":
    main()
