#!/usr/bin/python3
"""The second table of `make bench`: programs with many of one thing (crowd.c), dumped and restored with sealpoint
and, where it can, with package criu. Medians of BENCH_ROUNDS rounds (default: 3). It runs in network and pid
namespaces of its own, for connections are locked, and pids must be free at once.

Environment, beside what bench.py knows:
  BENCH_CROWDS   of "processes:100 processes:1000 threads:2000 descriptors:10000 connections:1000"
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from bench import SEALPOINT, Failed, Measured, Target, words

CROWDS = "processes:100 processes:1000 threads:2000 descriptors:10000 connections:1000"
NAMES = ("freeze", "dump", "restore", "criu freeze", "criu dump", "criu restore")


def run_sealpoint(directory, crowd):
    image = os.path.join(directory, "image")
    with Target(directory, crowd, "crowd") as target:
        dump = Measured(directory, SEALPOINT, "dump", str(target.pid), "-o", image, "--json", "--tcp-established",
                        "--timeout", "120")
        target.await_end()
        restore = Measured(directory, SEALPOINT, "restore", image, "--detach")
        target.check()
    shutil.rmtree(image)
    return {"freeze": json.loads(dump.output)["freeze"]["total_ns"] / 1e9, "dump": dump.wall, "restore": restore.wall}


def run_criu(directory, crowd):
    """Its own account of the freeze is in a file of statistics, which `crit` reads."""
    image = os.path.join(directory, "criu")
    os.mkdir(image)
    try:
        with Target(directory, crowd, "crowd") as target:
            dump = Measured(directory, "criu", "dump", "-t", str(target.pid), "-D", image, "--tcp-established")
            target.await_end()
            restore = Measured(directory, "criu", "restore", "-D", image, "-d")
            target.check()
        shown = subprocess.run(["crit", "show", os.path.join(image, "stats-dump")], check=False, capture_output=True)
        frozen = json.loads(shown.stdout)["entries"][0]["dump"]["frozen_time"] / 1e6 if not shown.returncode else None
        return {"criu freeze": frozen, "criu dump": dump.wall, "criu restore": restore.wall}
    finally:
        shutil.rmtree(image)


def row(directory, crowd, complaints):
    rounds = [run_sealpoint(directory, crowd) for _ in range(int(os.environ.get("BENCH_ROUNDS", 3)))]
    values = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    if os.environ.get("BENCH_CRIU") == "0" or not shutil.which("criu"):
        complaints.append("criu was left out")
        return values
    try:
        values.update(run_criu(directory, crowd))
    except Failed as failure:
        complaints.append(f"no criu: {failure}")
    return values


def main():
    as_json = os.environ.get("BENCH_JSON") == "1"
    complaints = []
    with tempfile.TemporaryDirectory(prefix="sealpoint-bench.", dir=os.environ.get("BENCH_DIR")) as directory:
        if not as_json:
            print(f"{'seconds':<18}" + "".join(f"{name:>14}" for name in NAMES), flush=True)
        for crowd in words("BENCH_CROWDS", CROWDS):
            kind, count = crowd.split(":")
            values = row(directory, (kind, count), complaints)
            if as_json:
                print(json.dumps({"crowd": kind, "count": int(count), **values}), flush=True)
                continue
            cells = (f"{values[name]:.3f}" if values.get(name) is not None else "-" for name in NAMES)
            print(f"{count:>6} {kind:<11}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
    for line in dict.fromkeys(complaints):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("the benchmark dumps and restores processes: run it as root")
    if "--in-namespace" not in sys.argv:
        # The shell reaps the orphans at once, whose pids a restore needs. Not every init does.
        os.execvp("unshare", ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c",
                              '"$@"; exit $?', "bash", sys.executable, __file__, "--in-namespace"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    try:
        main()
    except Failed as failure:
        sys.exit(f"crowds: {failure}")
