#!/usr/bin/python3
"""The benchmark table, `make bench`.

For each size, contents and kind of pages, a program is dumped and restored with sealpoint, with `--compress none` and
with its default, and checks itself afterwards. In the same run, for comparison: the same bytes, zero pages too, are
written with write(2) and fsync(2) to the same file system, and copied into fresh memory in the two ways that the
kernel offers;
and package criu does the same case, where it can. Each row is the median of several rounds in which everything takes
turns.

Environment:
  BENCH_SIZES     sizes (default "64M 1G 4G"; a size that memory or disk cannot hold is left out, and said so)
  BENCH_CONTENTS  of "zero compressible random"
  BENCH_PAGES     of "4k huge"
  BENCH_DIR       a directory on the file system to measure (default: a temporary directory)
  BENCH_ROUNDS    rounds per row (default: 5 for small sizes, 3, 1 for the largest)
  BENCH_CRIU=0    leaves criu out
  BENCH_JSON=1    one JSON object a row instead of the table
"""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.path.realpath(os.environ.get("BUILD", "build"))
SEALPOINT = os.path.join(BUILD, "sealpoint")
BENCH = os.path.join(BUILD, "tests", "bench")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Failed(Exception):
    """A command that did not do its work; the message is its own last words."""


def parse_size(text):
    return int(text[:-1]) * UNITS[text[-1].upper()] if text[-1:].upper() in UNITS else int(text)


class Measured:
    """A command that has run: wall and processor seconds, peak memory in bytes, output."""

    def __init__(self, directory, *command):
        numbers = os.path.join(directory, "measured")
        result = subprocess.run([os.path.join(BENCH, "measure"), numbers, *command], cwd=directory,
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            lines = (result.stderr or result.stdout).strip().splitlines() or [f"exit status {result.returncode}"]
            raise Failed(f"{command[0]}: {'; '.join(lines[-3:])}")
        with open(numbers, encoding="ascii") as file:
            wall, cpu, peak = map(int, file.read().split())
        self.wall, self.cpu, self.peak, self.output = wall / 1e9, cpu / 1e9, peak, result.stdout


class Target:
    """The program under test, alive from its start to the end of the `with` block, in whichever process."""

    def __init__(self, directory, arguments, program="target"):
        self.directory = directory
        self.go, self.out = (os.path.join(directory, name) for name in ("go", "out"))
        for name in (self.go, self.out):
            with open(name, "w", encoding="ascii"):
                pass
        with open(self.go, "rb") as trigger, open(self.out, "ab") as output:
            self.child = subprocess.Popen([os.path.join(BENCH, program), *arguments], stdin=trigger, stdout=output,
                                          stderr=output, cwd=directory, start_new_session=True)
        self.pid = self.child.pid

    def __enter__(self):
        while not self.said("READY"):
            if self.child.poll() is not None:
                raise Failed("the target ended before it was ready")
            time.sleep(0.01)
        return self

    def __exit__(self, *unused):
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
        while self.alive():
            time.sleep(0.005)

    def said(self, word):
        with open(self.out, encoding="ascii") as file:
            return word in file.read()

    def alive(self):
        self.child.poll()
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def await_end(self):
        """Until the pid is free again."""
        while os.path.exists(f"/proc/{self.pid}"):
            self.child.poll()
            time.sleep(0.002)

    def check(self):
        with open(self.go, "a", encoding="ascii") as file:
            file.write("go\n")
        while self.alive():
            time.sleep(0.01)
        if not self.said("PASS"):
            raise Failed("the restored program is not what it was")


def tree_size(path):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)


def run_sealpoint(directory, memory, compression):
    image = os.path.join(directory, "image")
    with Target(directory, memory) as target:
        dump = Measured(directory, SEALPOINT, "dump", str(target.pid), "-o", image, "--json", *compression)
        target.await_end()
        restore = Measured(directory, SEALPOINT, "restore", image, "--detach", "--json")
        target.check()
    told = json.loads(dump.output)
    values = {
        "freeze_s": told["freeze"]["total_ns"] / 1e9, "dump_s": dump.wall, "dump_cpu_s": dump.cpu,
        "dump_peak_bytes": dump.peak, "restore_s": restore.wall, "restore_cpu_s": restore.cpu,
        "restore_peak_bytes": restore.peak, "image_bytes": tree_size(image), "contents_bytes": told["contents_bytes"],
    }
    shutil.rmtree(image)
    return values


def run_criu(directory, memory):
    image = os.path.join(directory, "criu")
    os.mkdir(image)
    try:
        with Target(directory, memory) as target:
            dump = Measured(directory, "criu", "dump", "-t", str(target.pid), "-D", image, "-v1")
            target.await_end()
            restore = Measured(directory, "criu", "restore", "-D", image, "-d", "-v1")
            target.check()
        return {"dump_s": dump.wall, "restore_s": restore.wall, "image_bytes": tree_size(image)}
    finally:
        shutil.rmtree(image)


def run_peer(directory, what, memory):
    file = [os.path.join(directory, "written")] if what == "write" else []
    output = subprocess.run([os.path.join(BENCH, "peer"), what, *memory, *file], check=True, capture_output=True)
    for name in file:
        os.unlink(name)
    return int(output.stdout) / 1e9


def one_round(directory, memory):
    values = {"write_s": run_peer(directory, "write", memory)}
    values["plain"] = run_sealpoint(directory, memory, ["--compress", "none"])
    values["fill_s"] = min(run_peer(directory, what, memory) for what in ("copy", "populate"))
    values["compressed"] = run_sealpoint(directory, memory, [])
    values["dump_ratio"] = values["plain"]["dump_s"] / values["write_s"]
    values["restore_ratio"] = values["plain"]["restore_s"] / values["fill_s"]
    return values


def median(rounds):
    """Of each number, through nested dictionaries."""
    return {key: median([each[key] for each in rounds]) if isinstance(value, dict)
            else statistics.median(each[key] for each in rounds) for key, value in rounds[0].items()}


def criu_row(directory, memory):
    if os.environ.get("BENCH_CRIU") == "0" or not shutil.which("criu"):
        return None, "left out"
    try:
        return run_criu(directory, memory), None
    except Failed as failure:
        return None, str(failure)


def row(directory, size, contents, pages):
    memory = (str(parse_size(size)), contents, pages)
    default = 5 if parse_size(size) < 256 << 20 else 3 if parse_size(size) <= 1 << 30 else 1
    rounds = int(os.environ.get("BENCH_ROUNDS", default))
    values = median([one_round(directory, memory) for _ in range(rounds)])
    criu, reason = criu_row(directory, memory)
    return {"size": size, "contents": contents, "pages": pages, "rounds": rounds, **values, "criu": criu,
            "criu_failure": reason}


HEADING = ("size", "contents", "pages", "freeze", "dump", "cpu", "peak", "restore", "cpu", "peak", "bytes", "dump/",
           "restore/", "zstd", "zstd", "zstd", "criu", "criu")
SECOND = ("", "", "", "ms", "s", "s", "MiB", "s", "s", "MiB", "MiB", "write", "fill", "dump s", "MiB", "rest. s",
          "dump s", "rest. s")
WIDTHS = (5, 13, 6, 8, 8, 8, 6, 8, 8, 6, 8, 7, 8, 8, 8, 8, 8, 8)


def print_line(cells):
    print(" ".join(f"{cell:<{width}}" if i < 3 else f"{cell:>{width}}"
                   for i, (cell, width) in enumerate(zip(cells, WIDTHS))), flush=True)


def print_row(values):
    plain, packed, criu = values["plain"], values["compressed"], values["criu"]
    dump_peak, restore_peak = (max(each[f"{verb}_peak_bytes"] for each in (plain, packed)) / 2**20
                               for verb in ("dump", "restore"))
    print_line((values["size"], values["contents"], values["pages"], f"{plain['freeze_s'] * 1000:.2f}",
                f"{plain['dump_s']:.3f}", f"{plain['dump_cpu_s']:.3f}", f"{dump_peak:.1f}",
                f"{plain['restore_s']:.3f}", f"{plain['restore_cpu_s']:.3f}",
                f"{restore_peak:.1f}", f"{plain['image_bytes'] / 2**20:.1f}",
                f"{values['dump_ratio']:.2f}", f"{values['restore_ratio']:.2f}", f"{packed['dump_s']:.3f}",
                f"{packed['image_bytes'] / 2**20:.1f}", f"{packed['restore_s']:.3f}",
                f"{criu['dump_s']:.3f}" if criu else "-", f"{criu['restore_s']:.3f}" if criu else "-"))


def room_for(size, directory):
    """None, or why there is none: the program itself, its image, and what is measured beside it."""
    need = parse_size(size)
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    if need * 1.2 + (512 << 20) > available:
        return f"{size} of memory and some more are not free ({available >> 20} MiB are)"
    if need * 1.1 > shutil.disk_usage(directory).free:
        return f"{size} are not free in {directory}"
    return None


def words(name, default):
    return os.environ.get(name, default).split()


def main():
    as_json = os.environ.get("BENCH_JSON") == "1"
    complaints = []
    with tempfile.TemporaryDirectory(prefix="sealpoint-bench.", dir=os.environ.get("BENCH_DIR")) as directory:
        if not as_json:
            print_line(HEADING)
            print_line(SECOND)
        for size in words("BENCH_SIZES", "64M 1G 4G"):
            lack = room_for(size, directory)
            if lack:
                complaints.append(f"no rows for {size}: {lack}")
                continue
            for pages in words("BENCH_PAGES", "4k huge"):
                for contents in words("BENCH_CONTENTS", "zero compressible random"):
                    values = row(directory, size, contents, pages)
                    if as_json:
                        print(json.dumps(values), flush=True)
                    else:
                        print_row(values)
                    if values["criu_failure"]:
                        complaints.append(f"no criu: {values['criu_failure']}")
    for line in dict.fromkeys(complaints):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("the benchmark dumps and restores processes: run it as root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves by the `with` blocks
    try:
        main()
    except Failed as failure:
        sys.exit(f"bench: {failure}")
