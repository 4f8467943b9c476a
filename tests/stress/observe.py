"""What can be seen of a tree of processes from outside: observe(root), and in what two such sights differ.

/proc (status, stat, limits, names, mappings with their flags, timers, descriptors), which pages have contents and what
these are, which descriptors are one open file and which processes share a table (kcmp), what waits in pipes, sockets and
terminals, descriptors in flight, options and addresses of sockets, and what the system tells of all sockets and of
System V objects. What the kernel numbers anew is replaced by who holds it first. Nothing is changed by looking.
"""
import ctypes, fcntl, glob, hashlib, os, re, select, socket, stat, struct, termios, time

LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = 4096
PAGES_OF_SHARED_FILES = 1 << 61
PRESENT_OR_SWAPPED = 3 << 62
KCMP_FILE, KCMP_VM, KCMP_FILES, KCMP_FS, KCMP_SIGHAND = range(5)
PTMX, PTS = os.makedev(5, 2), 136  # a device, and the major number of slaves
WRITE_LEASE = 1
PIDFD_GETFD, KCMP = 438, 312


def read(path):
    with open(path, "rb") as file:
        return file.read().decode("latin-1")


def is_there(pid):
    return os.path.exists(f"/proc/{pid}")


# --- processes -------------------------------------------------------------------------------------------------------

def children(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        found += [int(word) for word in read(path).split()]
    return found


def tree_of(pid):
    found = [pid]
    for parent in found:
        found += sorted(children(parent))
    return sorted(found)


def stat_fields(path):
    return read(path).rpartition(")")[2].split()


def observe_ids(pid):
    """Fields of stat are numbered from 1 in proc(5); the first here is the third there."""
    fields = stat_fields(f"/proc/{pid}/stat")
    names = {"state": 3, "parent": 4, "group": 5, "session": 6, "terminal": 7, "foreground": 8, "exit signal": 38, "status": 52}
    seen = {name: fields[number - 3] for name, number in names.items()}
    if seen["state"] == "Z":
        del seen["terminal"], seen["foreground"]  # which it had, is of no consequence any more
    else:
        del seen["status"]
        seen["areas"] = " ".join(fields[number - 3] for number in (26, 27, 28, 45, 46, 47, 48, 49, 50, 51))
    return seen


WANTED_STATUS = ("Name", "Umask", "Uid", "Gid", "Groups", "Threads", "ShdPnd", "SigPnd", "SigBlk", "SigIgn", "SigCgt", "CapInh",
                 "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "THP_enabled", "Cpus_allowed", "VmLck")


def status(path):
    return {line.split(":")[0]: line.split(":", 1)[1].strip() for line in read(path).splitlines()
            if line.split(":")[0] in WANTED_STATUS}


def observe_call(path):
    """The system call that a thread waits in, with its arguments. One with a timeout is begun again with what is left."""
    words = read(path).split()
    if words[0] in ("219", "35", "230", "202", "7", "271", "270", "23"):
        return "waits"
    return " ".join(words[:7])


def observe_thread(path):
    fields = stat_fields(path + "/stat")
    seen = status(path + "/status")
    seen.update(state=fields[0], nice=fields[16], realtime=fields[37], policy=fields[38], name=read(path + "/comm"), call=observe_call(path + "/syscall"))
    if fields[0] == "T" and seen["call"].startswith("130 "):  # which of two masks sigsuspend(2) shows then is of no consequence
        del seen["SigBlk"]
    return seen


PLAIN_FILES = ("comm", "cmdline", "environ", "personality", "oom_score_adj", "coredump_filter", "timerslack_ns", "limits", "auxv",
               "timers")


SHARED = {"memory": KCMP_VM, "descriptors": KCMP_FILES, "directories": KCMP_FS, "signal actions": KCMP_SIGHAND}


def observe_sharing(pids):
    """With which other processes one shares what threads share."""
    return {pid: {name: [other for other in pids if LIBC.syscall(KCMP, pid, other, what, 0, 0) == 0] for name, what in SHARED.items()}
            for pid in pids}


def observe_process(pid):
    proc = f"/proc/{pid}"
    seen = {"ids": observe_ids(pid)}
    if seen["ids"]["state"] == "Z":
        seen["status"] = status(proc + "/status")
        return {key: value if key != "status" else value.get("Name") for key, value in seen.items()}
    for name in PLAIN_FILES:
        seen[name] = read(f"{proc}/{name}")
    for name in ("cwd", "root", "exe"):
        seen[name] = os.readlink(f"{proc}/{name}")
    seen["threads"] = {tid: observe_thread(f"{proc}/task/{tid}") for tid in sorted(os.listdir(proc + "/task"))}
    return seen


# --- memory ----------------------------------------------------------------------------------------------------------

# "sd" and "uw" of the flags are a matter of tracking, "ac" of the order in which protections were changed.
def mappings(pid):
    found, current = [], None
    for line in read(f"/proc/{pid}/smaps").splitlines():
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) (\S+) (\S+) (\S+) *(.*)", line)
        if match:
            start, end, access, offset, device, inode, name = match.groups()
            if name.endswith("(deleted)"):
                name = "(deleted)"
            current = {"start": int(start, 16), "end": int(end, 16), "access": access, "offset": offset, "name": name}
            found.append(current)
        elif line.startswith(("Anonymous:", "Swap:", "VmFlags:", "ProtectionKey:")):
            key, value = line.split(":", 1)
            current[key] = " ".join(sorted(set(value.split()) - {"sd", "ac", "uw"}))
    return [each for each in found if each["name"] not in ("[vvar]", "[vsyscall]", "[vvar_vclock]")]


def pages_of(pid, mapping):
    """Numbers and contents of the pages of its own that a mapping has."""
    found = {}
    count = (mapping["end"] - mapping["start"]) // PAGE
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap, open(f"/proc/{pid}/mem", "rb") as memory:
        pagemap.seek(mapping["start"] // PAGE * 8)
        entries = struct.unpack(f"{count}Q", pagemap.read(count * 8))
        for number, entry in enumerate(entries):
            if not entry & PRESENT_OR_SWAPPED:
                continue
            memory.seek(mapping["start"] + number * PAGE)
            try:
                contents = memory.read(PAGE)
            except OSError:
                contents = bytes(PAGE)
            if contents.count(0) == PAGE:  # what a dump has used of a stack is all zero again
                continue
            if not entry & PAGES_OF_SHARED_FILES:  # those come and go; what they hold is the file's
                found[number] = contents
    return found


def observe_memory(pid):
    """Neighbours that are alike count as one: whether the kernel keeps them apart is its own business."""
    areas, pages, last = {}, {}, None
    for mapping in mappings(pid):
        shape = {key: value for key, value in mapping.items() if key not in ("start", "end", "offset", "Anonymous", "Swap")}
        if last and last["end"] == mapping["start"] and last["shape"] == shape:
            last["end"] = mapping["end"]
        else:
            last = {"start": mapping["start"], "end": mapping["end"], "shape": shape}
            areas[mapping["start"]] = last
        if mapping["access"][3] == "s" or mapping["name"] == "[vdso]":
            continue
        for number, contents in pages_of(pid, mapping).items():
            pages[f"{mapping['start'] + number * PAGE:x}"] = contents
    return {"areas": {f"{each['start']:x}-{each['end']:x}": each["shape"] for each in areas.values()}, "pages": pages}


# --- descriptors -----------------------------------------------------------------------------------------------------

def duplicate(pid, fd):
    pidfd = os.pidfd_open(pid)
    try:
        own = LIBC.syscall(PIDFD_GETFD, pidfd, fd, 0)
        if own < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return own
    finally:
        os.close(pidfd)


def is_one_file(a, b):
    return LIBC.syscall(KCMP, a[0], b[0], KCMP_FILE, a[1], b[1]) == 0


TIMES = ("it_value", "it_interval")
NUMBERED = re.compile(r"(pipe|socket|anon_inode):\[(\d+)\]")


def observe_fdinfo(pid, fd):
    lines = []
    for line in read(f"/proc/{pid}/fdinfo/{fd}").splitlines():
        if line.startswith(("mnt_id", "ino:")):
            continue
        line = re.sub(r" (ino|sdev|pos):[^ ]*| fhandle.*", "", line)
        line = re.sub(r"eventfd-id:.*", "", line)
        line = re.sub(r"it_value: \((\d+),.*", lambda found: f"it_value about {(int(found[1]) + 3000) // 10000}", line)
        line = re.sub(r"^(lock:.*?) \S+:\S+:(\d+) ", lambda found: found[1] + " ", line)
        line = re.sub(r"^lock:\s*\d+:", "lock:", line)
        line = re.sub(r"(lock: (?:FLOCK|LEASE|POSIX) .*?) \d+ ", r"\1 ", line)  # who has taken it, not who has it
        lines.append(line)
    return "\n".join(sorted(lines))


def read_all(fd):
    """Without moving its position, and without opening it again where a lease forbids that."""
    if fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_DIRECT) in (os.O_RDONLY, os.O_RDWR):
        return os.pread(fd, 1 << 22, 0)
    with open(f"/proc/self/fd/{fd}", "rb") as file:
        return file.read(1 << 22)


def contents_of(fd):
    info = os.fstat(fd)
    try:
        contents = hashlib.md5(read_all(fd)).hexdigest()[:12]
    except OSError as error:
        contents = error.strerror
    return f"{info.st_size} bytes, mode {info.st_mode:o}, {info.st_nlink} names, owner {info.st_uid}, {contents}"


def attributes_of_queue(fd):
    """Of a POSIX message queue, with the number of its messages; nothing of any other file."""
    attributes = (ctypes.c_long * 8)()
    return list(attributes)[:4] if LIBC.syscall(245, fd, None, attributes) == 0 else None


def queued(fd):
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]


def observe_pipe(fd):
    seen = f"{queued(fd)} bytes of {fcntl.fcntl(fd, 1032)}"
    if queued(fd) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
        ends = os.pipe()
        fcntl.fcntl(ends[1], 1031, 1 << 20)
        LIBC.tee(fd, ends[1], 1 << 20, 2)
        seen += " " + hashlib.md5(os.read(ends[0], 1 << 20)).hexdigest()[:8] if queued(ends[0]) else ""
        os.close(ends[0]), os.close(ends[1])
    return seen


SOCKET_OPTIONS = ("SO_TYPE", "SO_ACCEPTCONN", "SO_RCVBUF", "SO_SNDBUF", "SO_KEEPALIVE", "SO_REUSEADDR",
                  "SO_REUSEPORT", "SO_RCVLOWAT", "SO_PRIORITY", "SO_MARK", "SO_LINGER", "SO_PASSCRED", "SO_OOBINLINE")


def is_alone(own):
    """The other end was closed. Its name, which the kernel still tells, is not kept."""
    if own.family != socket.AF_UNIX:
        return False
    if own.type == socket.SOCK_DGRAM:
        name = own.getpeername()
        name = name if isinstance(name, str) else "@" + name[1:].decode()
        return bool(name) and not read("/proc/net/unix").count(f" {name}\n")
    poll = select.poll()
    poll.register(own, 0)
    return bool(poll.poll(0))


def observe_socket(fd, describe):
    with socket.socket(fileno=os.dup(fd)) as own:
        seen = {}
        for name in SOCKET_OPTIONS:
            try:
                seen[name] = own.getsockopt(socket.SOL_SOCKET, getattr(socket, name))
            except OSError as error:
                seen[name] = error.strerror
        for what in ("getsockname", "getpeername"):
            try:
                seen[what] = str(getattr(own, what)()) if what == "getsockname" or not is_alone(own) else "-"
            except OSError as error:
                seen[what] = "-" if own.type == socket.SOCK_DGRAM else error.strerror
        if own.family == socket.AF_UNIX:
            try:
                seen["peer"] = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:].hex()
            except OSError as error:
                seen["peer"] = error.strerror
        if not seen.get("SO_ACCEPTCONN"):
            seen["queue"] = ask(fd, termios.FIONREAD, 4)
            seen["contents"], seen["in flight"] = observe_queue(own, describe)
        if own.family in (socket.AF_INET, socket.AF_INET6) and own.type == socket.SOCK_STREAM:
            seen["tcp"] = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1).hex()  # its state
        return seen


def observe_queue(own, describe):
    """What waits first, with the descriptors that come with it."""
    try:
        data, control, flags, sender = own.recvmsg(1 << 20, 8192, socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        return error.strerror, []
    carried = []
    for level, type, payload in control:
        if (level, type) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            for fd in struct.unpack(f"{len(payload) // 4}i", payload):
                carried.append(describe(fd))
                os.close(fd)
        elif type == socket.SCM_CREDENTIALS:
            carried.append(str(struct.unpack("3i", payload)))
    return f"{len(data)} {hashlib.md5(data).hexdigest()[:8]} from {sender}", carried


def ask(fd, request, size):
    try:
        return fcntl.ioctl(fd, request, bytes(size)).hex()
    except OSError as error:
        return error.strerror


def observe_terminal(fd):
    """Modes, size, packet mode, lock, what can be read."""
    return [ask(fd, request, size) for request, size in
            ((termios.TCGETS, 60), (termios.TIOCGWINSZ, 8), (0x80045438, 4), (0x80045439, 4), (termios.FIONREAD, 4))]


def observe_file(own, link, describe):
    info = os.fstat(own)
    if fcntl.fcntl(own, fcntl.F_GETFL) & os.O_PATH:
        return {"mode": info.st_mode}
    seen = {"owner": struct.unpack("2i", fcntl.fcntl(own, 16, bytes(8))), "signal": fcntl.fcntl(own, 11)}  # F_GETOWN_EX, F_GETSIG
    if link.startswith("anon_inode:"):
        pass
    elif stat.S_ISFIFO(info.st_mode):
        seen["pipe"] = observe_pipe(own)
    elif stat.S_ISSOCK(info.st_mode):
        seen["socket"] = observe_socket(own, describe)
    elif stat.S_ISCHR(info.st_mode) and (info.st_rdev == PTMX or os.major(info.st_rdev) == PTS):
        seen["terminal"] = observe_terminal(own)
    elif stat.S_ISREG(info.st_mode) and not link.startswith("/proc"):
        seen["lease"] = fcntl.fcntl(own, fcntl.F_GETLEASE)
        seen["message queue"] = attributes_of_queue(own)
        seen["contents"] = contents_of(own)
        if link.startswith("/memfd:"):
            seen["seals"] = fcntl.fcntl(own, 1034)
    return seen


class Descriptors:
    """By "pid/fd". `open file` is who holds the same open file first, and so is what the kernel numbers."""

    def __init__(self, pids):
        self.seen, self.objects, self.open_files = {}, {}, {}
        self.holders = [(pid, fd) for pid in pids for fd in sorted(map(int, os.listdir(f"/proc/{pid}/fd")))]
        for pid, fd in self.holders:
            own = duplicate(pid, fd)
            try:
                self.seen[f"{pid}/{fd}"] = self.observe(pid, fd, own)
            finally:
                os.close(own)

    def observe(self, pid, fd, own):
        link = self.link_of(pid, fd)
        alike = self.open_files.setdefault(link, [])
        same = next((other for other in alike if is_one_file(other, (pid, fd))), None)
        if not same:
            alike.append((pid, fd))
        return {"link": link, "fdinfo": observe_fdinfo(pid, fd), "open file": "%d/%d" % (same or (pid, fd)),
                **observe_file(own, link, self.describe_in_flight)}

    def link_of(self, pid, fd):
        link = os.readlink(f"/proc/{pid}/fd/{fd}")
        if NUMBERED.fullmatch(link) and "anon_inode" not in link:
            return link.split(":")[0] + " " + self.objects.setdefault(link, f"{pid}/{fd}")
        if link.endswith(" (deleted)") and not link.startswith("/memfd:") or os.path.basename(link).startswith("link."):
            return "(deleted)"  # or by another name that it has: random_files.c
        return link

    def describe_in_flight(self, fd):
        """A descriptor that came with a message: whose it is too, or what it is."""
        own = (os.getpid(), fd)
        holder = next((other for other in self.holders if is_one_file(other, own)), None)
        if holder:
            return "%d/%d" % holder
        link = re.sub(r"(pipe|socket):.*", r"\1", os.readlink(f"/proc/self/fd/{fd}"))
        return {"link": link, "fdinfo": observe_fdinfo(*own), **observe_file(fd, link, lambda fd: os.readlink(f"/proc/self/fd/{fd}").split(":")[0])}


# --- what the whole system tells: ss(8), ipcs(1) ---------------------------------------------------------------------

# Files, and the columns that stay the same. Those of System V: no times, and nobody who has used it last.
TABLES = {"net/unix": (3, 4, 5, 7), "net/tcp": (1, 2, 3, 4, 7), "net/tcp6": (1, 2, 3, 4, 7), "net/udp": (1, 2, 3, 4, 7), "net/udp6": (1, 2, 3, 4, 7),
          "net/udplite": (1, 2, 3, 4, 7), "net/udplite6": (1, 2, 3, 4, 7), "net/raw": (1, 2, 3, 7), "net/raw6": (1, 2, 3, 7),
          "net/packet": (2, 3, 4, 5, 6, 7), "net/netlink": (1, 3), "sysvipc/shm": (0, 1, 2, 3, 6, 7, 8, 9, 10), "sysvipc/sem": (0, 1, 2, 3, 4, 5, 6, 7),
          "sysvipc/msg": (0, 1, 2, 3, 4, 7, 8, 9, 10)}
TIME_WAIT = "06"


def observe_table(name, columns):
    rows = [line.split() for line in read(f"/proc/{name}").splitlines()[1:]]
    if name == "net/unix":  # of datagram sockets the state tells whether anybody has ever connected to it
        rows = [row[:5] + ["-"] + row[6:] if row[4] == "0002" else row for row in rows]
    rows = [row for row in rows if not ("tcp" in name and row[3] == TIME_WAIT) and "sealpoint" not in row[-1]]
    return sorted(" ".join(row[column] for column in columns if column < len(row)) for row in rows)


def observe_semaphores():
    """The values of all sets, by id."""
    found = {}
    for line in read("/proc/sysvipc/sem").splitlines()[1:]:
        values = (ctypes.c_ushort * int(line.split()[3]))()
        LIBC.semctl(int(line.split()[1]), 0, 13, values)
        found[line.split()[1]] = list(values)
    return found


# --- the whole -------------------------------------------------------------------------------------------------------

def observe(root):
    pids = tree_of(root)
    seen = {"processes": pids}
    living = [pid for pid in pids if stat_fields(f"/proc/{pid}/stat")[0] != "Z"]
    for pid in pids:
        seen[f"process {pid}"] = observe_process(pid)
    for pid in living:
        seen[f"memory of {pid}"] = observe_memory(pid)
    seen["sharing"] = observe_sharing(living)
    seen["descriptors"] = Descriptors(living).seen
    seen["system"] = {name: observe_table(name, columns) for name, columns in TABLES.items() if os.path.exists(f"/proc/{name}")}
    seen["semaphores"] = observe_semaphores()
    return seen


def changed_words(before, after):
    words = [f"{at:03x} {old:x} -> {new:x}" for at, old, new in zip(range(0, PAGE, 8), struct.unpack("512Q", before), struct.unpack("512Q", after))
             if old != new]
    return ", ".join(words[:6])


def differences(before, after, path=""):
    if isinstance(before, dict) and isinstance(after, dict):
        for key in list(before) + [key for key in after if key not in before]:
            yield from differences(before.get(key, "nothing"), after.get(key, "nothing"), f"{path} / {key}" if path else key)
    elif isinstance(before, bytes) and isinstance(after, bytes) and before != after:
        yield f"{path}: {changed_words(before, after)}"
    elif isinstance(before, list) and isinstance(after, list) and before != after:
        yield f"{path}: gone {[each for each in before if each not in after]!r}, new {[each for each in after if each not in before]!r} of {len(before)}"
    elif before != after:
        before, after = ["a page" if isinstance(each, bytes) else each for each in (before, after)]
        yield f"{path}: was {before!r}, is {after!r}"


def settled(root):
    """As it stays: a process that was let go takes its last step by itself."""
    last = None
    for _ in range(100):
        try:
            now = observe(root)
        except (FileNotFoundError, ProcessLookupError):
            now = None
        if now and now == last:
            return now
        last = now
        time.sleep(0.02)
    return last
