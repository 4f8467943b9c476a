#!/usr/bin/env python3
"""Random trees of processes are saved and brought back, and everything that can be seen of them from outside is compared.

    trees.py SEALPOINT RANDOM_TREE SEED...      (in a directory, and namespaces, of its own)

For each seed: the tree (random_tree.c) is looked at (observe.py), saved while it runs on, and looked at again. Then it takes
turns, and between them it is saved by deltas, saved ahead, ended by the last delta, restored, and looked at; then saved in
full, ended and restored once more. Then it goes on and has to end. What differs is listed, and the seed's directory is
kept. A dump that refuses something by name is counted as such, and not as a failure.
"""
import ctypes, os, shutil, signal, subprocess, sys, time

from observe import LIBC, differences, duplicate, is_there, read, settled, stat_fields, tree_of


class Failure(Exception):
    pass


def compare(before, root, when):
    found = None
    for _ in range(5):
        found = list(differences(before, settled(root) or {}))
        if not found:
            return
        time.sleep(0.1)
    raise Failure(f"{when}:\n  " + "\n  ".join(line[:400] for line in found[:12]))


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout.strip()


def wait_until(condition, what):
    deadline = time.time() + 60
    while not condition():
        if time.time() > deadline:
            raise Failure(what)
        time.sleep(0.01)


def collect(pid):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return not is_there(pid)


def start(program, seed, left_out):
    with open("out", "w") as out:
        child = subprocess.Popen([program, str(seed), *left_out], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                 env={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"})  # it changes with the processor
    wait_until(lambda: "READY" in read("out") or child.poll() is not None, "the tree does not become ready")
    if child.poll() is not None:
        raise Failure("the tree has ended: " + read("out"))
    child.returncode = 0  # it is collected below
    return child.pid


def end(root):
    for pid in tree_of(root) if is_there(root) else []:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_until(lambda: collect(root), "the tree does not end when it is killed")


def go_on(root):
    """The pipe's writing end is the root's descriptor 4: with a byte in it everybody ends."""
    pids = tree_of(root)
    own = duplicate(root, 4)
    os.write(own, b"!")
    os.close(own)
    for pid in pids:
        if stat_fields(f"/proc/{pid}/stat")[0] == "T":
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: all(not is_there(pid) or stat_fields(f"/proc/{pid}/stat")[0] == "Z" or collect(pid) for pid in pids),
               "the tree does not end")
    collect(root)


class SigVal(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("pointer", ctypes.c_void_p)]


class Refused(Exception):
    pass


class Tree:
    """A tree that is running, and what it looked like last."""

    def __init__(self, sealpoint, program, seed, left_out):
        self.sealpoint, self.turn = sealpoint, 0
        self.root = start(program, seed, left_out)
        self.before = settled(self.root)

    def compare(self, when):
        compare(self.before, self.root, when)

    def dump(self, directory, *options, command="dump", may_refuse=False):
        options += ("--tcp-established",) if command == "dump" else ()
        code, said = run(self.sealpoint, command, str(self.root), "-o", directory, *options)
        if code == 1 and may_refuse:
            self.compare(f"after the {command} of {directory} was refused")
            raise Refused(said)
        if code:
            raise Failure(f"{command} of {directory}: exit status {code}: {said}")
        return said

    def dump_beside(self, directory, *options, **more):
        """It runs on."""
        said = self.dump(directory, *options, **more)
        self.compare(f"after {directory} was saved")
        return said

    def end_and_restore(self, directory, *options, **more):
        pids = tree_of(self.root)
        self.dump(directory, *options, **more)
        wait_until(lambda: collect(self.root) and not any(map(is_there, pids)), "the tree is there after a dump that ends it")
        code, said = run(self.sealpoint, "restore", directory, "--detach")
        if code:
            raise Failure(f"restore of {directory}: exit status {code}: {said}")
        self.compare(f"after {directory} was restored")

    def take_turns(self):
        """Each process takes a few more steps, one after the other."""
        self.turn += 1
        for pid in tree_of(self.root):
            wait_until(lambda: self.has_turned(pid), f"process {pid} does not take its turn")
        self.before = settled(self.root)

    def has_turned(self, pid):
        if f"\n{pid} turned {self.turn}\n" in read("steps") or stat_fields(f"/proc/{pid}/stat")[0] in "ZT":
            return True
        LIBC.sigqueue(pid, signal.SIGPWR, SigVal(number=self.turn))
        return False


def try_seed(sealpoint, program, seed, left_out=()):
    """Returns how many processes were restored, or what was refused."""
    tree = Tree(sealpoint, program, seed, left_out)
    try:
        tree.dump_beside("full", "--leave-running", may_refuse=True)
        tree.dump_beside("live", "--leave-running", "--live", "--track")
        tree.take_turns()
        tree.dump_beside("delta", "--leave-running", "--parent", "live", may_refuse=True)
        tree.take_turns()
        tree.dump_beside("ahead", "--parent", "delta", command="pre-dump")
        tree.take_turns()
        tree.end_and_restore("ended by delta", "--parent", "ahead", may_refuse=True)
        tree.end_and_restore("ended")
        go_on(tree.root)
        return len(tree.before["processes"])
    except Refused as refused:
        return str(refused)
    finally:
        end(tree.root)


def main():
    sealpoint, program, *seeds = sys.argv[1:]
    seeds, left_out = [each for each in seeds if each.isdigit()], [each for each in seeds if not each.isdigit()]
    failed = 0
    top = os.getcwd()
    LIBC.prctl(36, 1, 0, 0, 0)
    for seed in seeds:
        directory = os.path.join(top, f"seed{seed}")
        os.mkdir(directory)
        os.chdir(directory)
        try:
            result = try_seed(sealpoint, program, seed, left_out)
            print(f"seed {seed}: " + (f"refused: {result}" if isinstance(result, str) else f"{result} processes"), flush=True)
            os.chdir(top)
            shutil.rmtree(directory)
        except (Failure, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"seed {seed} FAILED: {error}", flush=True)
            os.chdir(top)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
