"""`python -m tests.chaos [--seconds 120] [--seed N] [--store sqlite|postgresql|both]`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from tests.chaos.campaign import Campaign, Wanted
from tests.kit import postgres


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="of all campaigns together")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--store", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--writers", type=int, default=4)
    wanted = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if wanted.seed is None else wanted.seed
    stores = ["sqlite", "postgresql"] if wanted.store == "both" else [wanted.store]
    print(f"seed {seed}: SEED={seed} repeats it", flush=True)
    return max(_one(store, wanted.seconds / len(stores), seed, wanted.writers) for store in stores)


def _one(store: str, seconds: float, seed: int, writers: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"headgate-chaos-{store}-"))
    folder.chmod(0o755)
    programs = postgres._programs() if store == "postgresql" else None
    if store == "postgresql" and programs is None:
        print(postgres.MISSING, file=sys.stderr)
        return 1
    database = None if programs is None else postgres.Postgres(programs)
    campaign = Campaign(Wanted(seconds, seed, folder, writers, database))
    try:
        print(campaign.run(), flush=True)
    except (Exception, KeyboardInterrupt):
        traceback.print_exc()
        print(campaign.summary("BROKEN"))
        print(f"seed {seed}; lake and histories are kept in {folder}", flush=True)
        return 1
    finally:
        if database is not None:
            database.close()
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
