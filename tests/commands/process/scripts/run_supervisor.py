"""run_supervisor.py CONFIG WORKER-COMMAND…: a Supervisor with another worker, for its tests."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from commands.process import child, supervisor
from commands.process.node import StartError
from commands.process.supervisor import Supervisor
from conf.configuration import load


def main() -> int:
    path, *worker = sys.argv[1:]
    if look_s := os.environ.get("LOOK_S"):
        child.LOOK_EVERY_S = supervisor.TICK_S = float(look_s)

    def read():
        return load(Path(path), [], {})

    try:
        gateway = Supervisor(read(), worker, companions=[], reload=read, drain_margin_s=1.0)
        return gateway.run()
    except StartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
