#!/bin/bash
# A job of a shell comes back as a job of another shell, on another terminal: it reads what is typed, gets Ctrl-C,
# stops and goes on with Ctrl-Z and fg, and the shell sees its exit status. One that has set the modes of its terminal,
# as an editor does, has them on the new one, and is told to draw itself anew. A job may be more than one process, and
# have a terminal of its own.
#
# timeout: 120
# shellcheck source=tests/lib.sh
source "$TOP/tests/lib.sh"

cat >job.py <<'P'
import signal, sys

signal.signal(signal.SIGINT, lambda number, frame: print("GOT SIGINT", flush=True))
print("READY", flush=True)
for line in sys.stdin:
    print("READ", line.strip(), flush=True)
print("END", flush=True)
sys.exit(7)
P

cat >editor.py <<'P'
import os, signal, sys, termios, tty

before = termios.tcgetattr(0)
signal.signal(signal.SIGWINCH, lambda number, frame: print("DRAWN", flush=True))
tty.setcbreak(0)
print("READY", flush=True)
while (key := os.read(0, 1)) != b"q":
    print("KEY <%s>" % key.decode(), flush=True)
termios.tcsetattr(0, termios.TCSADRAIN, before)
P

# An interactive shell on a terminal of its own, and what appears there.
cat >terminals.py <<'P'
import os, pty, re, select, subprocess, sys, time

sealpoint = sys.argv[1]

class Shell:
    def __init__(self):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.closerange(3, 1024)
            os.environ["PS1"] = "prompt> "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.output = ""
        self.expect("prompt> ")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def expect(self, pattern):
        """Waits until the pattern has appeared, and forgets all up to there."""
        deadline = time.monotonic() + 20
        while not (found := re.search(pattern, self.output)):
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self.terminal], [], [], left)[0]:
                sys.exit("waited in vain for %r, saw %r" % (pattern, self.output[-300:]))
            self.output += os.read(self.terminal, 4096).decode(errors="replace")
        self.output = self.output[found.end():]
        return found

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)

def move(command, image):
    """A new shell, with the program as its job that another shell has started."""
    old = Shell()
    old.type(command + "\n")
    old.expect("READY")
    job = subprocess.check_output(["pgrep", "-P", str(old.pid)], text=True).strip()
    subprocess.run([sealpoint, "dump", job, "-o", image, "--shell-job"], check=True)
    old.close()
    new = Shell()
    new.type("%s restore %s --shell-job\n" % (sealpoint, image))
    new.expect("restored process " + job)
    return new

shell = move("python3 job.py", "saved")
shell.type("hello\n")
shell.expect("READ hello")
shell.type("\x03")
shell.expect("GOT SIGINT")
shell.type("\x1a")
shell.expect("Stopped")
shell.expect("prompt> ")
shell.type("fg\n")
shell.expect("restore saved")
shell.type("again\n")
shell.expect("READ again")
shell.type("\x04")
shell.expect("END")
shell.type("echo status $?\n")
status = shell.expect(r"\nstatus (\d+)|status (\d+)\r").group(0).strip()
if status != "status 7":
    sys.exit("the shell saw " + status)
shell.close()

# A job of two processes, a shell and its child: both stop and go on, and the shell collects its child.
shell = move("sh -c 'python3 job.py; echo its child ended with $?; exit 3'", "tree")
shell.type("hello\n")
shell.expect("READ hello")
shell.type("\x1a")
shell.expect("Stopped")
shell.expect("prompt> ")
shell.type("fg\n")
shell.expect("restore tree")
shell.type("again\n")
shell.expect("READ again")
shell.type("\x04")
shell.expect("END")
shell.expect("its child ended with 7")
shell.expect("prompt> ")
shell.type("echo status $?\n")
shell.expect("status 3")
shell.close()

# A job that has a terminal of its own, with another job in it: the inner one is saved, the outer one is the new shell's.
shell = move("script -q -c 'python3 job.py' /dev/null", "scripted")
shell.type("hello\n")
shell.expect("READ hello")
shell.type("\x03")
shell.expect("GOT SIGINT")
shell.type("\x04")
shell.expect("END")
shell.expect("prompt> ")
shell.close()

shell = move("python3 editor.py", "edited")
shell.expect("DRAWN")
shell.type("k")
if "k" in shell.expect("([^<]*)KEY <k>").group(1):
    sys.exit("the terminal has echoed a key")
shell.type("q")
shell.expect("prompt> ")
shell.close()
P
if python3 terminals.py "$sealpoint" >log 2>&1 </dev/null; then
	ok "$TEST_NAME"
else
	not_ok "$TEST_NAME" "$(tail -2 log)"
fi
