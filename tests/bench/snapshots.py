#!/usr/bin/env python3
"""What snapshots cost a busy redis, `make bench-snapshots`: throughput and latency under redis-benchmark, with none and
with several rates.

The store is in a directory of its own below TMPDIR. Everything runs on this machine, so the processors are shared by
redis-server, redis-benchmark and sealpoint: the ratios are those of a machine with as many cores as it has.
"""
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SEALPOINT = os.environ.get("SEALPOINT") or os.path.join(os.environ.get("BUILD", "build"), "sealpoint")
PORT = 17911
SECONDS = float(os.environ.get("BENCH_SECONDS", "8"))
KEYS = 100_000
RATES = [None, "1s", "100ms", "10ms"]


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def redis_cli(*arguments):
    return run("redis-cli", "-p", str(PORT), *arguments)


def start_redis(directory):
    with open(directory / "redis.log", "w") as log:
        server = subprocess.Popen(
            ["redis-server", "--port", str(PORT), "--save", "", "--dir", str(directory)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            redis_cli("ping")
            break
        except subprocess.CalledProcessError:
            time.sleep(0.05)
    redis_cli("debug", "populate", str(KEYS), "key", "500")
    return server


def benchmark():
    """Requests a second and the 99th percentile in ms, for SECONDS of SET of 500 bytes on random keys."""
    requests = 20_000
    total, began, p99 = 0, time.monotonic(), []
    while time.monotonic() - began < SECONDS:
        line = run("redis-benchmark", "-p", str(PORT), "-n", str(requests), "-r", str(KEYS), "-c", "20",
                   "-d", "500", "-t", "set", "--csv").strip().splitlines()[-1]
        p99.append(float(line.replace('"', "").split(",")[6]))
        total += requests
    return total / (time.monotonic() - began), sorted(p99)[len(p99) // 2]


def with_snapshots(server, directory, every):
    store = directory / f"store-{every}"
    with open(directory / "snapshot.log", "w") as log:
        snapshots = subprocess.Popen(
            [SEALPOINT, "snapshot", str(server.pid), "-o", str(store), "--every", every, "--tcp-close",
             "--keep", "5", "--max-chain", "50", "--json"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        result = benchmark()
    finally:
        snapshots.send_signal(signal.SIGINT)
        snapshots.wait()
    text = (directory / "snapshot.log").read_text()
    freezes = sorted(int(ns) / 1e6 for ns in re.findall(r'"freeze_ns": ?(\d+)', text))
    if not freezes:
        sys.exit(f"no snapshot was made: {text[-500:]}")
    shutil.rmtree(store)
    return result, len(freezes), freezes[len(freezes) // 2], freezes[-1]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="sealpoint-bench."))
    server = start_redis(directory)
    print(f"redis with {KEYS:,} keys of 500 bytes under redis-benchmark (SET, 20 clients), Linux "
          f"{platform.release()}, {os.cpu_count()} processors")
    print(f"{'snapshots':>10} {'made':>6} {'requests/s':>11} {'of none':>8} {'p99 ms':>8} {'freeze ms: median':>18} {'max':>7}")
    try:
        none = None
        for every in RATES:
            if every is None:
                none = benchmark()
                print(f"{'none':>10} {'-':>6} {none[0]:>11,.0f} {'100%':>8} {none[1]:>8.2f} {'-':>18} {'-':>7}")
                continue
            (rate, p99), made, median, most = with_snapshots(server, directory, every)
            print(f"{every:>10} {made:>6} {rate:>11,.0f} {rate / none[0]:>8.0%} {p99:>8.2f} {median:>18.2f} {most:>7.2f}",
                  flush=True)
        print(f"aim: at most 10% lost at {every}: {1 - rate / none[0]:.0%}, with a snapshot every "
              f"{SECONDS / made * 1000:.0f} ms (--share limits how much they take)")
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
