"""`cmalight` and `python -m cmalight`."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command, or say what to install for it."""
    try:
        from cmalight.cli import command
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        if sys.argv[1:] == ["--version"]:
            from cmalight import __version__

            sys.stdout.write(f"cmalight {__version__}\n")
            return
        sys.stderr.write('cmalight: error: the command needs click: pip install "cmalight[bench]"\n')
        sys.exit(2)
    was_interrupted = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        was_interrupted.append(number)
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        command(prog_name="cmalight")
    except Exception:
        if was_interrupted:  # libraries turn a Ctrl-C during their import into errors of their own
            sys.exit(130)
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C while Python shuts down would print a traceback


if __name__ == "__main__":
    main()
