"""Hostile entries for the sandbox's tests: each one tries something and says what happened.

This module runs inside the sandbox. `main` writes one JSON object {attack: "allowed: ..." | "blocked: ..."} to its
first descriptor; an attack that kills the process leaves the object unwritten.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
MIB = 1 << 20


def raw(number: int, *arguments: int) -> int:
    """Make a raw system call or raise OSError."""
    result = int(_libc.syscall(ctypes.c_long(number), *[ctypes.c_long(value) for value in arguments]))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read(path: str) -> Callable[[dict[str, Any]], object]:
    """Return an attack that reads a file."""

    def attack(_: dict[str, Any]) -> object:
        with open(path, "rb") as file:
            return file.read(20)

    return attack


def listing(path: str) -> Callable[[dict[str, Any]], object]:
    """Return an attack that lists a folder."""
    return lambda _: os.listdir(path)


def write(path: str) -> Callable[[dict[str, Any]], object]:
    """Return an attack that writes a file."""

    def attack(_: dict[str, Any]) -> object:
        with open(path, "wb") as file:
            return file.write(b"x")

    return attack


def stat(path: str) -> Callable[[dict[str, Any]], object]:
    """Return an attack that learns of a file without opening it."""
    return lambda _: os.stat(path).st_size


def connect_loopback(facts: dict[str, Any]) -> object:
    with socket.socket() as client:
        client.settimeout(2)
        client.connect(("127.0.0.1", facts["port"]))
    return "connected"


def send_a_packet(facts: dict[str, Any]) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        return client.sendto(b"\0\1example\3org", ("127.0.0.1", facts["port"]))


def abstract_socket(facts: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + facts["abstract"])
    return "connected"


def abstract_datagram(facts: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        return client.sendmsg([b"x"], [], 0, "\0" + facts["datagrams"])  # the address is out of a filter's sight


def path_socket(facts: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(facts["socket"])
    return "connected"


def fork(_: dict[str, Any]) -> object:
    child = os.fork()
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)


def run_shell(_: dict[str, Any]) -> object:
    return _in_a_child(lambda: os.execv("/bin/sh", ["sh", "-c", "exit 0"]))


def run_set_uid_program(facts: dict[str, Any]) -> object:
    """Become root through a program that belongs to root and has the set-uid bit."""
    read_end, write_end = os.pipe()

    def start() -> NoReturn:
        os.dup2(write_end, 1)
        os.execv(facts["set_uid"], ["id", "-u"])

    try:
        _in_a_child(start)
        os.close(write_end)
        write_end = -1
        said = os.read(read_end, 100).strip()
    finally:
        for end in (read_end, write_end):
            if end >= 0:
                os.close(end)
    return _only_if(said, said == b"0")


def _in_a_child(action: Callable[[], object]) -> object:
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(99)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 99:
        raise PermissionError("could not be executed")
    return status


def raise_memory_limit(_: dict[str, Any]) -> object:
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)  # the CPU profile limits the first, the GPU profile the second
    limited = [kind for kind in kinds if resource.getrlimit(kind)[1] != resource.RLIM_INFINITY]
    return resource.setrlimit(limited[0], (-1, -1)) if limited else "there is none"


def raise_open_files(_: dict[str, Any]) -> object:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))


def host_name(facts: dict[str, Any]) -> object:
    return _only_if(os.uname().nodename, os.uname().nodename == facts["host_name"])


def host_sockets(facts: dict[str, Any]) -> object:
    with open("/proc/self/net/tcp", encoding="ascii") as file:
        return _only_if("seen", f":{facts['port']:04X} " in file.read())


def host_processes(_: dict[str, Any]) -> object:
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return _only_if(found, any(pid not in (1, os.getpid()) for pid in found))


def host_load(_: dict[str, Any]) -> object:
    with open("/proc/loadavg", encoding="ascii") as file:
        return _only_if("seen", bool(file.read()))


def control_group(_: dict[str, Any]) -> object:
    with open("/proc/self/cgroup", encoding="ascii") as file:
        places = {line.rstrip("\n").split(":", 2)[2] for line in file}
    return _only_if(places, places != {"/"})


def host_memory_segment(facts: dict[str, Any]) -> object:
    number = raw(29, facts["segment"], 0, 0)
    _libc.shmat.restype = ctypes.c_void_p
    return ctypes.string_at(_libc.shmat(number, None, 0o10000), 6)


def set_host_name(_: dict[str, Any]) -> object:
    name = ctypes.create_string_buffer(b"owned")
    return raw(170, ctypes.addressof(name), 5)


def own_capabilities(_: dict[str, Any]) -> object:
    with open("/proc/self/status", encoding="ascii") as file:
        sets = [int(line.split()[1], 16) for line in file if line.startswith("Cap")]
    return _only_if(sets, any(sets))


def inherited_descriptors(_: dict[str, Any]) -> object:
    found = [number for number in _open_numbers() if number > 3]
    return _only_if(found, bool(found))


def memory_of(pid: int) -> Callable[[dict[str, Any]], object]:
    """Return an attack that reads another process's memory through /proc."""

    def attack(_: dict[str, Any]) -> object:
        with open(f"/proc/{pid}/maps", encoding="ascii") as file:
            start = int(file.readline().split("-")[0], 16)
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(start)
            return file.read(4)

    return attack


def _only_if(what: object, holds: bool) -> object:
    if not holds:
        raise PermissionError("nothing of the host is seen")
    return what


def _open_numbers() -> list[int]:
    found = []
    for number in range(256):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found


def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def _opened_or(path: str, otherwise: int) -> int:
    try:
        return _opened(path)
    except OSError:
        return otherwise


BLOCKED: dict[str, Callable[[dict[str, Any]], object]] = {
    "connect to loopback": connect_loopback,
    "send a packet": send_a_packet,
    "resolve a name": lambda _: socket.getaddrinfo("example.org", 443),
    "connect to an abstract socket": abstract_socket,
    "send to an abstract socket": abstract_datagram,
    "connect to a socket file": path_socket,
    "make a socket": lambda _: socket.socket(),
    "make a Unix socket": lambda _: socket.socket(socket.AF_UNIX),
    "make a netlink socket": lambda _: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
    "make a socket pair": lambda _: socket.socketpair(),
    "see the host's sockets": host_sockets,
    "read /etc/shadow": read("/etc/shadow"),
    "read /etc/passwd": read("/etc/passwd"),
    "read the wallet": lambda facts: read(facts["secret"])(facts),
    "learn of the wallet": lambda facts: stat(facts["secret"])(facts),
    "read root's own wallet": lambda facts: read(facts["private"])(facts),
    "read another bundle": lambda facts: read(facts["bundle"])(facts),
    "list the home": lambda facts: os.listdir(facts["home"]),
    "list the root": listing("/"),
    "read the environment of pid 1": read("/proc/1/environ"),
    "read the memory of pid 1": memory_of(1),
    "list the root of pid 1": listing("/proc/1/root/"),
    "list the descriptors of pid 1": listing("/proc/1/fd"),
    "write its own memory file": write("/proc/self/mem"),
    "write to the root": write("/intruder"),
    "write to /usr": write("/usr/intruder"),
    "write to a package": lambda facts: write(facts["package"] + "/intruder.py")(facts),
    "write a kernel setting": write("/proc/sys/kernel/core_pattern"),
    "write its oom score": write("/proc/self/oom_score_adj"),
    "see the host's load": host_load,
    "see the host's processes": host_processes,
    "learn the host's name": host_name,
    "learn its place among control groups": control_group,
    "read the host's shared memory": host_memory_segment,
    "kill the host's parent": lambda facts: os.kill(facts["parent"], facts["signal"]),
    "kill pid 1": lambda facts: os.kill(1, facts["signal"]),
    "kill everything": lambda facts: os.kill(-1, facts["signal"]),
    "signal a thread of pid 1": lambda facts: raw(234, 1, 1, facts["signal"]),
    "open a pidfd": lambda _: os.pidfd_open(1),
    "fork": fork,
    "vfork": lambda _: raw(58),
    "clone a process": lambda _: raw(56, signal.SIGCHLD, 0, 0, 0, 0),
    "clone3": lambda _: raw(435, 0, 0),
    "run a shell": run_shell,
    "run a set-uid program": run_set_uid_program,
    "become root": lambda _: os.setuid(0),
    "become another user": lambda _: os.setresuid(1, 1, 1),
    "become another group": lambda _: os.setgid(1),
    "keep capabilities": own_capabilities,
    "raise the memory limit": raise_memory_limit,
    "raise the descriptor limit": raise_open_files,
    "use inherited descriptors": inherited_descriptors,
    "make a device node": lambda _: os.mknod("/scratch/device", 0o60600, os.makedev(8, 0)),
    "make shared memory": lambda facts: raw(29, facts["segment"] + 1, 4096, 0o1666),
    "make a memfd": lambda _: os.memfd_create("x"),
    "make a message queue": lambda _: raw(240, 0, 0, 0, 0),
    "move to other cores": lambda _: os.sched_setaffinity(0, range(os.cpu_count() or 1)),
    "raise its priority": lambda _: os.nice(-5),
    "become traceable": lambda _: raw(157, 4, 1, 0, 0, 0),
    "watch files": lambda _: raw(254, 0, 0, 0),
    "inject a terminal key": lambda _: raw(16, 0, 0x5412, 0),
    "lock a file shared with the host": lambda facts: fcntl.flock(
        _opened(facts["package"] + "/py.typed"), fcntl.LOCK_EX
    ),
    "lock a range of a shared file": lambda facts: fcntl.lockf(_opened(facts["package"] + "/py.typed"), fcntl.LOCK_SH),
    "seal memory": lambda _: fcntl.fcntl(0, fcntl.F_ADD_SEALS, 0),
    "take over signals": lambda _: fcntl.fcntl(0, fcntl.F_SETOWN, 1),
    "ask for the load of the host": lambda _: raw(99, ctypes.addressof(ctypes.create_string_buffer(256))),
    "change the host name": set_host_name,
}


def _pointer(*words: int) -> int:
    """Return the address of a block of 64-bit words that lives for ever."""
    block = (ctypes.c_uint64 * max(16, len(words)))(*words)
    _blocks.append(block)
    return ctypes.addressof(block)


_blocks: list[object] = []


def _text(value: bytes) -> int:
    block = ctypes.create_string_buffer(value)
    _blocks.append(block)
    return ctypes.addressof(block)


def process_memory(number: int) -> Callable[[dict[str, Any]], object]:
    """Return an attack that reads or writes the memory of pid 1 with process_vm_readv or process_vm_writev."""

    def attack(_: dict[str, Any]) -> object:
        ours = _pointer(_text(bytes(8)), 8)
        theirs = _pointer(0x400000, 8)
        return raw(number, 1, ours, 1, theirs, 1, 0)

    return attack


def call_32_bit(_: dict[str, Any]) -> object:
    """Make a system call through the 32-bit gate."""
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20 (getpid of that table); int 0x80; ret
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    _blocks.append(area)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))()


FATAL: dict[str, Callable[[dict[str, Any]], object]] = {
    "ptrace": lambda _: raw(101, 16, 1, 0, 0),
    "process_vm_readv": process_memory(310),
    "process_vm_writev": process_memory(311),
    "process_madvise": lambda _: raw(440, 0, 0, 0, 0, 0),
    "kcmp": lambda _: raw(312, 1, 1, 0, 0, 0),
    "unshare": lambda _: raw(272, 0x10000000),
    "setns": lambda _: raw(308, _opened_or("/proc/1/ns/user", 0), 0),
    "mount": lambda _: raw(165, _text(b"x"), _text(b"/scratch"), _text(b"tmpfs"), 0, 0),
    "unmount": lambda _: raw(166, _text(b"/scratch"), 2),
    "open a mount": lambda _: raw(428, -100, _text(b"/"), 1),
    "pivot_root": lambda _: raw(155, _text(b"/scratch"), _text(b"/scratch")),
    "chroot": lambda _: raw(161, _text(b"/scratch")),
    "bpf": lambda _: raw(321, 0, _pointer(1 | 4 << 32, 4 | 1 << 32), 16),
    "io_uring_setup": lambda _: raw(425, 1, _pointer(*[0] * 16)),
    "io_uring_register": lambda _: raw(427, -1, 0, 0, 0),
    "userfaultfd": lambda _: raw(323, 1),
    "perf_event_open": lambda _: raw(298, _pointer(1 | 64 << 32), 0, -1, -1, 0),
    "open_by_handle_at": lambda _: raw(304, -100, _pointer(8 | 1 << 32, 2), 0),
    "keyctl": lambda _: raw(250, 0, -3, 1, 0, 0),
    "add_key": lambda _: raw(248, _text(b"user"), _text(b"name"), _text(b"payload"), 7, -3),
    "request_key": lambda _: raw(249, _text(b"user"), _text(b"name"), 0, -3),
    "pidfd_getfd": lambda _: raw(438, 0, 0, 0),
    "load a module": lambda _: raw(175, 0, 0, 0),
    "secret memory": lambda _: raw(447, 0),
    "read the kernel log": lambda _: raw(103, 3, _text(bytes(64)), 64),
    "x32 call": lambda _: raw(0x40000000 + 39),
    "32-bit call": call_32_bit,
}


def _attempt(attack: Callable[[dict[str, Any]], object], facts: dict[str, Any]) -> str:
    try:
        return f"allowed: {str(attack(facts))[:100]}"
    except BaseException as error:  # noqa: BLE001 - whatever stops an attack is the answer
        return f"blocked: {type(error).__name__}: {str(error)[:100]}"


def main(descriptors: tuple[int, ...], argument: bytes) -> None:
    """Run the attacks named in the request and write what happened to the first descriptor."""
    facts = json.loads(argument)
    table = {**BLOCKED, **FATAL, **BOMBS, **MEASURED}
    result = {name: _attempt(table[name], facts) for name in facts["attacks"]}
    os.write(descriptors[0], json.dumps(result).encode())


def _descriptors(_: dict[str, Any]) -> object:
    return _open_numbers()


def _thread_bomb(_: dict[str, Any]) -> object:
    count = 0
    try:
        for _ in range(2000):
            threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
            count += 1
    except RuntimeError:
        return count
    return "unlimited"


def _memory_bomb(_: dict[str, Any]) -> object:
    kept = []  # never touched: where no limit stops it, the host loses no page
    try:
        while len(kept) < 64:
            kept.append(mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    except OSError:
        return len(kept) * 64
    return "unlimited"


def _fill_scratch(_: dict[str, Any]) -> object:
    written = 0
    try:
        for index in range(64):
            with open(f"/scratch/{index}", "wb") as file:
                written += file.write(bytes(MIB))
    except OSError:
        return written // MIB
    return "unlimited"


def _large_file(_: dict[str, Any]) -> object:
    written = 0
    try:
        with open("/scratch/large", "wb", buffering=0) as file:
            while written < 64 * MIB:
                written += file.write(bytes(MIB))
    except OSError:
        return written // MIB
    return "unlimited"


def _hoard_descriptors(_: dict[str, Any]) -> object:
    count = 0
    try:
        while count < 100_000:
            os.dup(0)
            count += 1
    except OSError:
        return count
    return "unlimited"


def _executable_memory(_: dict[str, Any]) -> object:
    with mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE) as area:
        area.write(b"x")
    return "written"


def _thread_works(_: dict[str, Any]) -> object:
    done = []
    thread = threading.Thread(target=lambda: done.append(1))
    thread.start()
    thread.join()
    return done


def _many_files(_: dict[str, Any]) -> object:
    count = 0
    try:
        for index in range(20_000):
            os.close(os.open(f"/scratch/{index}", os.O_CREAT | os.O_WRONLY))
            count += 1
    except OSError:
        return count
    return "unlimited"


def _held(bomb: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    """Return a bomb that stays at what it reached, so that it can be seen from outside."""

    def attack(facts: dict[str, Any]) -> object:
        reached = bomb(facts)
        time.sleep(1.0)
        return reached

    return attack


BOMBS: dict[str, Callable[[dict[str, Any]], object]] = {
    "start threads without end": _held(_thread_bomb),
    "take memory without end": _memory_bomb,
    "take descriptors without end": _hoard_descriptors,
    "write without end": _held(_fill_scratch),
    "write one large file": _large_file,
    "make files without end": _held(_many_files),
}

MEASURED: dict[str, Callable[[dict[str, Any]], object]] = {
    "descriptors": _descriptors,
    "working folder": lambda _: os.getcwd(),
    "host load": read("/proc/loadavg"),
    "host processors' time": read("/proc/stat"),
    "kernel settings": listing("/proc/sys"),
    "processor model": read("/proc/cpuinfo"),
    "pids": lambda _: sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "interfaces": lambda _: [name for _, name in socket.if_nameindex()],
    "host name": lambda _: os.uname().nodename,
    "identity": lambda _: [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()],
    "cores": lambda _: sorted(os.sched_getaffinity(0)),
    "use memory": _executable_memory,
    "use a thread": _thread_works,
    "write to scratch": write("/scratch/file"),
    "read a bind": read("/bundle/file.txt"),
    "write to a bind": write("/bundle/file.txt"),
    "list a bind": listing("/bundle"),
}


def spin(_: tuple[int, ...], argument: bytes) -> NoReturn:
    """Burn CPU for ever; with an argument, deaf to SIGXCPU."""
    if argument:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


def sleep(_: tuple[int, ...], __: bytes) -> None:
    """Do nothing for a long time."""
    time.sleep(600)


def flood(_: tuple[int, ...], __: bytes) -> NoReturn:
    """Write to standard output for ever."""
    while True:
        os.write(1, b"flood " * 1000)


def fork_bomb(_: tuple[int, ...], __: bytes) -> NoReturn:
    """Fork for ever, swallowing every error."""
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.001)


def eat_memory(_: tuple[int, ...], __: bytes) -> None:
    """Allocate without end and without catching the error."""
    kept = []
    while True:
        kept.append(bytearray(64 * MIB))


def fill_memory_file(descriptors: tuple[int, ...], _: bytes) -> NoReturn:
    """Grow the memory file in the first descriptor without end: no limit of one process counts its pages."""
    while True:
        os.write(descriptors[0], bytes(16 * MIB))


def thread_burst(_: tuple[int, ...], argument: bytes) -> None:
    """Start threads until it fails; then stay, or with an argument be gone before anybody looks."""
    _thread_bomb({})
    if not argument:
        time.sleep(10)


def misbehave(_: tuple[int, ...], argument: bytes) -> None:
    """End in the way the argument names."""
    match argument:
        case b"segfault":
            ctypes.string_at(0)
        case b"abort":
            os.abort()
        case b"kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"exit":
            sys.exit(7)
        case b"exit immediately":
            os._exit(9)
        case b"exit text":
            sys.exit("a reason")
        case b"raise":
            print("about to raise")
            raise ValueError("the reason")
        case b"print":
            print("hello")
            print("world", file=sys.stderr)


def environment(descriptors: tuple[int, ...], _: bytes) -> None:
    """Write the environment to the first descriptor."""
    os.write(descriptors[0], json.dumps(dict(os.environ)).encode())


def count(descriptors: tuple[int, ...], _: bytes) -> NoReturn:
    """Count in shared memory, from two threads, for ever."""
    with mmap.mmap(descriptors[0], 4096) as area:

        def run(offset: int) -> NoReturn:
            value = 0
            while True:
                value += 1
                area[offset : offset + 8] = value.to_bytes(8, "little")

        threading.Thread(target=run, args=(0,), daemon=True).start()
        run(8)


def deface(descriptors: tuple[int, ...], _: bytes) -> None:
    """Try every way to change the sealed memory in the first descriptor; report to the second."""
    number = descriptors[0]
    with mmap.mmap(number, 0, access=mmap.ACCESS_READ) as view:
        content = view[:16].hex()

    def reopened(action: Callable[[int], object]) -> object:
        again = os.open(f"/proc/self/fd/{number}", os.O_RDWR)
        try:
            return action(again)
        finally:
            os.close(again)

    def remap(descriptor: int) -> object:
        with mmap.mmap(descriptor, 4096) as area:
            area[0:1] = b"X"
        return "mapped"

    def make_writable(descriptor: int) -> object:
        address = raw(9, 0, 4096, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        return raw(10, address, 4096, mmap.PROT_READ | mmap.PROT_WRITE)

    def punch(descriptor: int) -> object:
        return raw(285, descriptor, 3, 0, 4096)

    actions: dict[str, Callable[[int], object]] = {
        "write": lambda descriptor: os.pwrite(descriptor, b"X", 0),
        "map": remap,
        "protect": make_writable,
        "punch": punch,
        "truncate": lambda descriptor: os.ftruncate(descriptor, 0),
        "grow": lambda descriptor: os.ftruncate(descriptor, 1 << 20),
    }
    result = {"content": content}
    for name, action in actions.items():
        result[name] = _attempt(lambda _, act=action: act(number), {})
        result[f"{name} reopened"] = _attempt(lambda _, act=action: reopened(act), {})
    os.write(descriptors[1], json.dumps(result).encode())


ENTRIES = {
    name: f"sandbox_attacks:{function}"
    for name, function in {
        "attack": "main",
        "spin": "spin",
        "sleep": "sleep",
        "flood": "flood",
        "fork_bomb": "fork_bomb",
        "eat_memory": "eat_memory",
        "misbehave": "misbehave",
        "fill_memory_file": "fill_memory_file",
        "thread_burst": "thread_burst",
        "count": "count",
        "deface": "deface",
        "environment": "environment",
    }.items()
}
