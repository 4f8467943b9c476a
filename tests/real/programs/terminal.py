# Runs a program in a terminal of its own, as a terminal emulator does: types what is appended to the file
# "typed", and appends what appears to the file "screen".
import os
import pty
import select
import sys

typed = open("typed", "rb")
screen = open("screen", "ab", buffering=0)
pid, master = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    text = typed.read()
    if text:
        os.write(master, text)
    if select.select([master], [], [], 0.02)[0]:
        try:
            screen.write(os.read(master, 65536))
        except OSError:
            break
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
