#!/usr/bin/python3
"""How long a program stands still, `make bench-freeze`, also the last but one table of `make bench-tracking`.

A program with much memory writes to random pages and notices its own longest gap between two writes. It is saved as a
whole, as a delta, and live: once while it writes at a given rate, and once while it writes as fast as it can. Each row
is the median of several rounds; "gap" is what the program noticed, "before" what it notices without any dump.

Environment:
  FREEZE_SIZE    MiB of memory (default 2048)
  FREEZE_RATE    pages a second (default 20000)
  FREEZE_ROUNDS  rounds per row (default 5); while it writes as fast as it can there is one round only, because each
                 dump then saves all of the memory, most of it from what was put aside, and takes several times as long
  BENCH_DIR      a directory on the file system to measure (default: a temporary directory)
"""
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.path.realpath(os.environ.get("BUILD", "build"))
SEALPOINT = os.path.join(BUILD, "sealpoint")
GAPS = os.path.join(BUILD, "tests", "bench", "gaps")
SIZE = os.environ.get("FREEZE_SIZE", "2048")
RATE = os.environ.get("FREEZE_RATE", "20000")
ROUNDS = int(os.environ.get("FREEZE_ROUNDS", "5"))
AIMS = {"delta": 4, "live": 10} # ms frozen, for the default size and rate on a quiet machine of two cores
PARTS = ("stop", "state", "descriptors", "mappings", "memory")


class Writer:
    """The program under test."""

    def __init__(self, directory, rate):
        self.path = os.path.join(directory, "gaps")
        with open(self.path, "w", encoding="ascii") as output:
            # A pipe or a terminal of ours would be half of something that cannot be saved.
            self.process = subprocess.Popen([GAPS, SIZE, rate, "1"], cwd=directory, stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=output, start_new_session=True)
        self.output = open(self.path, encoding="ascii")
        self.line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.output.close()

    def line(self):
        """What it says next, as a list of words."""
        text = ""
        while not text.endswith("\n"):
            text += self.output.readline()
            time.sleep(0.001)
            if self.process.poll() is not None:
                sys.exit("the program under test has ended")
        return text.split()

    def gap(self):
        """The longest gap in ms since the last call, and the number of writes."""
        self.process.send_signal(signal.SIGUSR1)
        gap, writes = self.line()
        return int(gap) / 1000, int(writes)


def dump(writer, directory, *options):
    """Saves it; returns what sealpoint says, and the longest gap and the writes a second meanwhile."""
    writer.gap()
    started = time.monotonic()
    result = subprocess.run([SEALPOINT, "dump", str(writer.process.pid), "-o", directory, "--leave-running", "--json",
                             *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.monotonic() - started
    gap, writes = writer.gap()
    if result.returncode != 0:
        sys.exit(f"sealpoint dump {' '.join(options)}: {result.stderr.strip()} {result.stdout.strip()}")
    return json.loads(result.stdout), gap, writes / took


def row(name, samples):
    """Prints the medians of a case; returns how long it was frozen, in ms."""
    def median(value):
        return statistics.median(value(sample) for sample in samples)

    freeze = [f"{median(lambda s, p=part: s[0]['freeze'][p + '_ns']) / 1e6:8.2f}" for part in PARTS]
    total = median(lambda s: s[0]["freeze"]["total_ns"]) / 1e6
    print(f"{name:24} {total:9.2f} {' '.join(freeze)} "
          f"{median(lambda s: s[1]):9.1f} {median(lambda s: s[0]['total_ns']) / 1e9:8.2f} "
          f"{median(lambda s: s[0]['held_bytes']) / 2**20:8.0f} {median(lambda s: s[2]):11.0f}", flush=True)
    return total


def measure(directory, rate, rounds, title):
    """All rows of one rate."""
    cases = {"full": [], "delta": [], "live": []}
    with Writer(directory, rate) as writer:
        writer.gap()
        time.sleep(2)
        before, writes = writer.gap()
        print(f"\n{SIZE} MiB, {title}, Linux {platform.release()}; before: longest gap {before:.1f} ms, {writes / 2:.0f} writes a second")
        print(f"{'':24} {'frozen ms':>9} {' '.join(f'{part[:8]:>8}' for part in PARTS)} {'gap ms':>9} {'total s':>8} "
              f"{'held MiB':>8} {'writes/s':>11}")
        for _ in range(rounds):
            image = os.path.join(directory, "image")
            cases["full"].append(dump(writer, image))
            shutil.rmtree(image)
            cases["live"].append(dump(writer, image, "--live"))
            shutil.rmtree(image)
            first = os.path.join(directory, "first")
            dump(writer, first, "--track")
            time.sleep(0.25) # about 1% of 2 GiB at 20,000 pages a second
            cases["delta"].append(dump(writer, image, "--parent", first))
            shutil.rmtree(image)
            shutil.rmtree(first)
            subprocess.run([SEALPOINT, "track", "stop", str(writer.process.pid), "--quiet"], check=False)
        frozen = {name: row(name, samples) for name, samples in cases.items()}
    if rate != "0":
        print("aim: " + "; ".join(f"{name} frozen for at most {aim} ms: {frozen[name]:.1f}" for name, aim in AIMS.items()))


def main():
    """Both rates."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    directory = tempfile.mkdtemp(prefix="sealpoint-freeze.", dir=os.environ.get("BENCH_DIR"))
    try:
        measure(directory, RATE, ROUNDS, f"{RATE} random pages a second")
        measure(directory, "0", 1, "as fast as it can")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
