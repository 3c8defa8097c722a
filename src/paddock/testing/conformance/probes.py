"""Small programs that the checks run inside a sandbox; each needs python3 and nothing else."""

# Starts argv[2] (a program) as daemons of old were started: own session, parent gone, nothing open.
# argv[1] is a name to find it by, the rest are its arguments; the first of them is a file that it
# writes, and once that is there the daemon runs.
DAEMON_OF = """
import os, sys, time
name, program, *arguments = sys.argv[1:]
if os.fork():
    os.wait()
    end = time.time() + 10
    while arguments and not os.path.exists(arguments[0]) and time.time() < end:
        time.sleep(0.01)
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
null = os.open(os.devnull, os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
os.execvp("python3", ["python3", "-c", program, *arguments, name])
"""

SLEEP = "import time; time.sleep(600)"

# Appends to a file again and again.
BEAT = """
import sys, time
end = time.time() + 600
while time.time() < end:
    with open(sys.argv[1], "a") as file:
        file.write(".")
    time.sleep(0.02)
"""

# Leaves a daemon and a child deaf to SIGTERM, both beating into files, and waits for ever.
FAMILY = """
import os, signal, subprocess, sys, time
daemonise, beat, daemon, child = sys.argv[1:]
subprocess.run(["python3", "-c", daemonise, "daemon", beat, daemon], check=True)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        with open(child, "a") as file:
            file.write(".")
        time.sleep(0.02)
print("family", flush=True)
time.sleep(600)
"""

# Counts in memory and writes each number to a file, replacing it in one step.
COUNTER = """
import os, sys, time
number = 0
while True:
    number += 1
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(f"{os.getpid()} {number}")
    os.replace(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(0.02)
"""

# Counts in memory and appends each number to a file, with a word that is nowhere but in memory.
DIARY = """
import os, sys, time
word, number = os.urandom(8).hex(), 0
while True:
    number += 1
    print(word, number, file=open(sys.argv[1], "a"))
    time.sleep(0.02)
"""

# Two files that grow in turn: at any moment their lengths differ by one line at most.
LOCKSTEP = """
import sys, time
with open(sys.argv[1], "a") as first, open(sys.argv[2], "a") as second:
    while True:
        for file in (first, second):
            file.write("x")
            file.flush()
        time.sleep(0.001)
"""

# Tries to connect to port argv[1] at each further address and at the gateway; prints which it did.
CONNECT = """
import socket, struct, sys, threading
port, targets = int(sys.argv[1]), set(sys.argv[2:])
try:
    for line in open("/proc/net/route").read().splitlines()[1:]:
        fields = line.split()
        if fields[1] == "00000000":
            targets.add(socket.inet_ntoa(struct.pack("<L", int(fields[2], 16))))
except OSError:
    pass
def probe(address):
    try:
        socket.create_connection((address, port), timeout=3).close()
        print(address, flush=True)
    except OSError:
        pass
threads = [threading.Thread(target=probe, args=(address,)) for address in targets]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""

# Prints those of argv[2:] that, connected to at port argv[1], say what a neighbour says.
GREETED = """
import socket, sys
for address in sys.argv[2:]:
    try:
        connection = socket.create_connection((address, int(sys.argv[1])), timeout=3)
        if connection.recv(64).startswith(b"neighbour"):
            print(address, flush=True)
    except OSError:
        pass
"""

# Serves the text argv[3] over HTTP on port argv[2]; the file argv[1] is there once it listens.
SERVE = """
import http.server, sys, threading
body = sys.argv[3].encode()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[2])), Handler)
open(sys.argv[1], "w").close()
threading.Timer(600, server.shutdown).start()
server.serve_forever()
"""

# How many processes are seen here, and which of the arguments stand in their command lines.
PROCESSES = """
import os, sys
seen, marked = 0, []
for entry in filter(str.isdigit, os.listdir("/proc")):
    if int(entry) == os.getpid():
        continue
    try:
        line = open(f"/proc/{entry}/cmdline", "rb").read()
    except OSError:
        continue
    seen += 1
    marked += [word for word in sys.argv[1:] if word.encode() in line]
print(seen, *marked)
"""

# Touches page after page until something stops it; argv[1] in MiB.
EAT_MEMORY = """
import sys
kept = []
for _ in range(int(sys.argv[1])):
    kept.append(bytearray(b"x" * (1 << 20)))
print("ate it all")
"""

# Forks up to argv[1] children that do nothing, says how many there could be, and ends them.
FORK_BOMB = """
import os, signal, sys, time
children = []
try:
    for _ in range(int(sys.argv[1])):
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            signal.pause()
            os._exit(0)
        children.append(pid)
except OSError:
    pass
print(len(children), flush=True)
for pid in children:
    os.kill(pid, signal.SIGKILL)
for pid in children:
    os.waitpid(pid, 0)
"""

# Writes argv[2] MiB that cannot be compressed into a file, then removes it; says how far it came.
FILL_DISK = """
import os, sys
written, block = 0, os.urandom(1 << 20)
try:
    with open(sys.argv[1], "wb") as file:
        for _ in range(int(sys.argv[2])):
            file.write(os.urandom(64) + block[64:])
            file.flush()
            if written % 16 == 0:
                os.fsync(file.fileno())
            written += 1
        os.fsync(file.fileno())
except OSError as error:
    print("stopped:", error.strerror, file=sys.stderr)
finally:
    try:
        os.unlink(sys.argv[1])
    except OSError:
        pass
print(written)
"""

# Burns processor time with argv[1] processes for argv[2] seconds; says how much they got together.
BURN = """
import os, sys, time
children = []
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        end = time.monotonic() + float(sys.argv[2])
        while time.monotonic() < end:
            pass
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
times = os.times()
print(times.children_user + times.children_system)
"""

# What an intruder would try on the process that started it and on that one's parents.
ATTACK_GUEST = """
import os
def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
pid = os.getppid()
while pid > 0:
    try:
        os.kill(pid, 0)
        print("may signal", pid)
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/mem", "rb"):
            print("may read mem of", pid)
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            names = {line.partition(b"=")[0] for line in file.read().split(bytes(1)) if line}
        if names - {b"PATH", b"HOME", b"LANG"}:  # what every process has tells nothing
            print("may read environ of", pid)
    except OSError:
        pass
    pid = parent(pid) if pid != 1 else 0
"""

# Sets the clock to what it already says, so that a host without a fence is not harmed.
SET_CLOCK = """
import time
try:
    time.clock_settime_ns(time.CLOCK_REALTIME, time.clock_gettime_ns(time.CLOCK_REALTIME))
    print("did")
except OSError as error:
    print(error.strerror)
"""

# Mounts a file system on a directory of its own and takes it away again.
MOUNT = """
import ctypes, os, tempfile
libc = ctypes.CDLL(None, use_errno=True)
place = tempfile.mkdtemp().encode()
if libc.mount(b"none", place, b"tmpfs", 0, None) == 0:
    print("did")
    libc.umount2(place, 2)
else:
    print(os.strerror(ctypes.get_errno()))
os.rmdir(place)
"""

# Makes a tree of all kinds of files in argv[1]; with argv[2], a file of the template goes too.
TREE_MADE = """
import importlib.util, os, sys
root, template = sys.argv[1:]
os.makedirs(root + "/empty")
os.makedirs(root + "/closed")
for number in range(200):
    with open(f"{root}/{number}", "w") as file:
        file.write(f"line {number}\\n" * 4000)
for name, mode in (("0", 0o640), ("1", 0o4755), ("2", 0o400), ("closed", 0o700), ("empty", 0o1777)):
    os.chmod(f"{root}/{name}", mode)
try:
    os.lchown(root + "/3", 1234, 5678)
except PermissionError:
    pass
try:
    os.setxattr(root + "/4", "user.kept", bytes(range(256)))
except OSError:
    pass
os.link(root + "/5", root + "/empty/hard")
os.symlink("nowhere at all", root + "/soft")
os.symlink("/absolute", root + "/far")
os.utime(root + "/6", ns=(10**18, 10**18 + 123456789))
with open(root + "/a name\\nof \\u00fc lines", "w") as file:
    file.write("named")
with open(root + "/sparse", "wb") as file:
    file.truncate(1 << 30)
    file.seek(700 << 20)
    file.write(b"an island")
if template:
    os.unlink(importlib.util.find_spec("this").origin)
"""

# Lists what TREE_MADE has made in argv[1], with everything that a copy could lose.
TREE_LISTED = """
import hashlib, importlib.util, os, stat, sys
def about(path):
    found = os.lstat(path)
    line = [repr(path), oct(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns]
    if stat.S_ISLNK(found.st_mode):
        return [*line, os.readlink(path)]
    try:
        line += [(name, os.getxattr(path, name)) for name in sorted(os.listxattr(path))
                 if name.startswith("user.")]
    except OSError:
        pass
    if not stat.S_ISREG(found.st_mode):
        return line
    with open(path, "rb") as file:
        file.seek(700 << 20 if found.st_size >> 30 else 0)
        content = file.read(1 << 20)
    is_sparse = found.st_blocks * 512 < found.st_size // 2
    content = hashlib.sha256(content.rstrip(bytes(1))).hexdigest()
    return [*line, found.st_nlink, found.st_size, is_sparse, content]
paths = [sys.argv[1]]
for place, directories, files in os.walk(sys.argv[1]):
    paths += [os.path.join(place, name) for name in directories + files]
for path in sorted(paths):
    print(*about(path))
same = os.stat(sys.argv[1] + "/5").st_ino == os.stat(sys.argv[1] + "/empty/hard").st_ino
print("hard", same)
print("template", importlib.util.find_spec("this") is not None)
"""
