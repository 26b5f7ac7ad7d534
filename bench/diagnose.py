#!/usr/bin/env python3
"""Plants 18 faults in VMs that others started, one after the other, and asks a command what is wrong: the rule of the fault has to
come first; a setting whose cost nobody measures has to be among those worth checking, and be no cause. Then it asks about healthy VMs,
idle and busy, of which none may have a finding.

    bench/diagnose.py [--kernel VMLINUX] [--box-guest FOLDER [--guest-program FILE]] [--accelerator tcg|kvm] [--command COMMAND]
        [--only NAME,…] [--healthy N]

COMMAND gets the VM's process in the place of PID and prints JSON: "vmtax diagnose PID --json" or "vmtax top PID --json --level 1
--duration 5". VMLINUX is a kernel with virtio, 9p and virtiofs built in that runs on this host's KVM, as VMTAX_TEST_KVM_GUEST of the
tests (CONTRIBUTING.md); without it faults that need Linux in the guest are not planted. FILE is bench/diagnose_guest.c, compiled
statically, for the guest in FOLDER, that of box/image. Exits 0 when every planted fault came first
and no healthy VM has a finding, 1 otherwise, 2 when something is missing. As root.
"""

import argparse
import contextlib
import json
import lzma
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CPU_MODEL = "host,-arch-capabilities,-smap,-smep,-umip,-pcid,-invpcid,-x2apic,-tsc-deadline,-xsaves,-pku,-la57"
QEMU_5_2 = os.path.expanduser("~/.cache/vmtax/qemus/5.2.0-bullseye/qemu-system-x86_64")
VIRTIOFSD = next(filter(os.path.exists, ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")), None)
MIB = 1 << 20


# What the box's guest does for each kind of work: see box/guest-init.
BOX_LOADS = {
    "idle": "idle",
    "cpu": "cpu",
    "read": "disk:/dev/vda:0:100",
    "write": "disk:/dev/vda:0:0",
}
# Drivers that further kinds need and its initramfs lacks.
BOX_MODULES = {"virtiofs": ["virtiofs"]}
BOX_INIT = b"""#!/bin/busybox sh
while read -r module; do /bin/busybox insmod /modules/$module; done </modules/order
exec /guest
"""


class NotPlanted(Exception):
    """What this host lacks for a fault."""


def sector(code, patches=()):
    """A boot sector of this code, at 0x7c00, with further bytes at these places."""
    whole = bytearray(code.ljust(510, b"\0") + b"\x55\xaa")
    for at, data in patches:
        whole[at:at + len(data)] = data
    return bytes(whole)


def reading(disk, bits):
    """Reads 4 KiB for ever at random places below 2^bits sectors of one of the firmware's disks."""
    packet, place, seed = (struct.pack("<H", 0x7C00 + at) for at in (0x50, 0x58, 0x60))
    code = bytes.fromhex("31c08ed88ed0bc007cfb")  # segments 0, a stack, sti
    begin = len(code)
    code += b"\x66\xa1" + seed + b"\x66\x69\xc0" + struct.pack("<I", 1103515245) + b"\x66\x05" + struct.pack("<I", 12345)
    code += b"\x66\xa3" + seed + b"\x66\xc1\xe8\x08\x66\x25" + struct.pack("<I", ((1 << bits) - 1) & ~7) + b"\x66\xa3" + place
    code += bytes([0xB2, disk, 0xB8, 0, 0x42, 0xBE]) + packet + b"\xcd\x13"  # int 0x13
    code += bytes([0xEB, (begin - len(code) - 2) & 0xFF])
    return sector(code, [(0x50, bytes([0x10, 0, 8, 0, 0, 0, 0, 0x10]))])


SPINNING = sector(bytes.fromhex("ebfe"))
IDLE = sector(bytes.fromhex("fbf4ebfc"))  # sti, hlt


def in_32_bits(code):
    """A boot sector that enters 32 bits and executes this code."""
    enter = bytes.fromhex("fa31c08ed80f0116607c0f20c00c010f22c0ea177c0800" "66b810008ed8")
    gdt = struct.pack("<QQQ", 0, 0xCF9A000000FFFF, 0xCF92000000FFFF)
    return sector(enter + code, [(0x60, struct.pack("<HI", len(gdt) - 1, 0x7C68)), (0x68, gdt)])


HPET = in_32_bits(bytes.fromhex("a1f000d0feebf9"))  # reads its counter, for ever
# Reads 256 MiB of memory behind the first 16 MiB at random places, for ever.
MEMORY = in_32_bits(bytes.fromhex("69db6d4ec641" "81c339300000" "89d8" "c1e804" "8a8000000001" "ebe7"))


def firmware(code):
    """Firmware that begins with this code."""
    rom = bytearray(64 << 10)
    rom[0xFFF0:0xFFF0 + len(code)] = code
    return bytes(rom)


UART = firmware(bytes.fromhex("bafd03ecbaf803eeebf6"))  # reads the line status, sends a byte, for ever


def qcow2(path, size):
    """A qcow2 image whose clusters are all allocated, and empty."""
    cluster = 64 << 10
    entries = size // cluster
    tables = -(-entries * 8 // cluster)
    l1, l2, data = 2 * cluster, 3 * cluster, (3 + tables) * cluster
    copied = 1 << 63
    with open(path, "wb") as image:
        image.write(struct.pack(">4sIQIIQIIQQIIQQQQII", b"QFI\xfb", 3, 0, 0, 16, size, 0, tables, l1, cluster, 1, 0, 0, 0, 0, 0, 4, 104))
        image.seek(l1)
        image.write(b"".join(struct.pack(">Q", (l2 + i * cluster) | copied) for i in range(tables)))
        image.seek(l2)
        image.write(b"".join(struct.pack(">Q", (data + i * cluster) | copied) for i in range(entries)))
        image.truncate(data + entries * cluster)


def archive(files):
    """An initramfs (newc) of executable files, by name."""
    out = b""
    all_files = [(name, 0o100755, data) for name, data in files.items()] + [("TRAILER!!!", 0, b"")]
    for number, (name, mode, data) in enumerate(all_files):
        fields = [number + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return out


class Bench:
    """What is started ends with it."""

    def __init__(self, scratch, arguments, stack):
        self.scratch, self.kernel, self.accelerator, self.stack = scratch, arguments.kernel, arguments.accelerator, stack
        self.box_guest, self.guest_program = arguments.box_guest, arguments.guest_program
        # A distribution's kernel needs more.
        self.memory = "384M" if self.box_guest else "128M"
        self.cpus = sorted(os.sched_getaffinity(0))
        self.number = 0
        self.initramfs = self.path("guest.cpio")

    def path(self, name):
        return os.path.join(self.scratch, name)

    def put(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def process(self, *words, **more):
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
        self.stack.callback(lambda: (process.kill(), process.wait()))
        return process

    def hog(self, cpu):
        self.process("taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass")

    def group(self, controller, settings, settings_of_2):
        """A control group with these settings of version 1, or of 2, whose file of processes is returned."""
        top = f"/sys/fs/cgroup/{controller}"
        if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
            top, settings = "/sys/fs/cgroup", settings_of_2
        folder = f"{top}/vmtax-bench-{os.getpid()}-{self.number}"
        try:
            if settings is settings_of_2:
                write(f"{top}/cgroup.subtree_control", f"+{controller}")
            os.mkdir(folder)
            self.stack.callback(lambda: remove_group(folder))
            for name, value in settings.items():
                with open(f"{folder}/{name}", "w") as file:
                    file.write(value)
        except OSError as error:
            raise NotPlanted(f"control group {folder}: {error}") from error
        return f"{folder}/cgroup.procs"

    def vm(self, *words, program="qemu-system-x86_64", procs=None):
        """A VM with two monitors: for the command, and for the bench."""
        self.number += 1
        qmp = [f"unix:{self.path(f'{name}{self.number}')},server=on,wait=off" for name in ("qmp", "own")]
        process = self.process(program, "-nodefaults", "-display", "none", "-name", f"bench{self.number},debug-threads=on",
                               "-qmp", qmp[0], "-qmp", qmp[1], *words, preexec_fn=lambda: procs and write(procs, os.getpid()))
        timeout = time.monotonic() + 30
        # Bound is not yet listening.
        while not accepts(self.path(f"own{self.number}")):
            if process.poll() is not None or time.monotonic() > timeout:
                raise NotPlanted(f"{program} {shlex.join(words)} does not start")
            time.sleep(0.1)
        return process.pid

    def bios(self, code, *words, accelerator=None):
        """One that boots a sector."""
        accelerator = accelerator or self.accelerator
        boot = self.put(f"boot{self.number}", code + bytes(16 * MIB))
        drive = f"if=none,id=boot,format=raw,file={boot}"
        return self.vm("-accel", accelerator, "-m", "32", "-drive", drive, "-device", "virtio-blk-pci,drive=boot,bootindex=0", *words)

    def linux(self, work, *words, memory="128M", **more):
        if self.box_guest:
            return self.box_linux(work, *words, **more)
        if not self.kernel:
            raise NotPlanted("no --kernel")
        with open("/proc/cpuinfo") as info:
            khz = round(float(re.search(r"cpu MHz\s*: ([0-9.]+)", info.read())[1]) * 1000)
        line = f"tsc_early_khz={khz} tsc=reliable hpet=disable mitigations=off reboot=k quiet console=ttyS0 rdinit=/init work={work}"
        log = self.path(f"console{self.number + 1}")
        pid = self.vm("-machine", "q35,accel=kvm", "-bios", "/usr/share/qemu/qboot.rom", "-cpu", CPU_MODEL, "-m", memory, "-kernel", self.kernel,
                      "-initrd", self.initramfs, "-append", line, "-serial", f"file:{log}", *words, **more)
        wanted = "ready" if work in ("9p", "virtiofs") else f"work {work}\n"
        printed(log, wanted, 60)
        return pid

    def box_linux(self, work, *words, **more):
        """The guest of the box, whose kernel is a distribution's."""
        log = self.path(f"console{self.number + 1}")
        initramfs, does, wanted = f"{self.box_guest}/initramfs", f"load={BOX_LOADS.get(work)}", "guest is up"
        if work not in BOX_LOADS:
            initramfs, does = self.box_initramfs(BOX_MODULES.get(work, [])), f"work={work}"
            wanted = "ready" if work == "virtiofs" else f"work {work}"
        pid = self.vm("-machine", "q35,accel=kvm", "-cpu", "host", "-m", self.memory, "-kernel", f"{self.box_guest}/vmlinuz", "-initrd", initramfs,
                      "-append", f"console=ttyS0 quiet mitigations=off {does}", "-serial", f"file:{log}", *words, **more)
        printed(log, wanted, 300)
        return pid

    def box_initramfs(self, modules):
        """The initramfs of the box's guest with the guest program and these modules; of a file that is twice in it the last counts."""
        if not self.guest_program:
            raise NotPlanted("no --guest-program")
        own = read_bytes(f"{self.box_guest}/initramfs")
        order = subprocess.run(["cpio", "-i", "--quiet", "--to-stdout", "*modules/order"], input=own, check=True, capture_output=True).stdout
        files = {"init": BOX_INIT, "guest": read_bytes(self.guest_program)}
        for module in modules:
            needed = subprocess.run(["modprobe", "--show-depends", module], check=True, capture_output=True, text=True).stdout
            for path in re.findall(r"^insmod (\S+)", needed, re.M):
                name, packed = os.path.basename(path).removesuffix(".xz"), path.endswith(".xz")
                if name.encode() not in order.split():
                    files[f"modules/{name}"] = lzma.decompress(read_bytes(path)) if packed else read_bytes(path)
                    order += name.encode() + b"\n"
        return self.put("box.cpio", own + bytes(-len(own) % 4) + archive(files | {"modules/order": order}))

    def disk(self, name, options, size=64 * MIB):
        """The arguments of a virtio disk on a file of its own."""
        path = self.path(f"{name}{self.number}.raw")
        with open(path, "wb") as file:
            for _ in range(size // MIB):
                file.write(b"\7" * MIB)
        return ["-drive", f"if=none,id={name},format=raw,file={path}{options}", "-device", f"virtio-blk-pci,drive={name},id=disk-{name}"]

    def monitor(self, execute, **arguments):
        """Asks the last VM's monitor for the bench once."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(30)
            stream.connect(self.path(f"own{self.number}"))
            with stream.makefile("rw") as lines:
                lines.readline()
                for command in ({"execute": "qmp_capabilities"}, {"execute": execute, "arguments": arguments}):
                    lines.write(json.dumps(command) + "\n")
                    lines.flush()
                    while "event" in (answer := json.loads(lines.readline())):
                        pass
                return answer["return"]


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def printed(log, wanted, seconds):
    """Waits until a guest's console has this."""
    timeout = time.monotonic() + seconds
    while wanted not in read(log):
        if time.monotonic() > timeout:
            raise NotPlanted(f"no \"{wanted}\" of the guest: {read(log)[-300:]}")
        time.sleep(0.2)


def accepts(path):
    with socket.socket(socket.AF_UNIX) as stream:
        return stream.connect_ex(path) == 0


def remove_group(folder):
    for _ in range(50):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
            return
        time.sleep(0.1)


def cpu_hog(bench):
    pid = bench.bios(SPINNING)
    subprocess.run(["taskset", "-a", "-p", "-c", str(bench.cpus[0]), str(pid)], check=True, capture_output=True)
    bench.hog(bench.cpus[0])
    bench.hog(bench.cpus[0])
    return pid


def quota(bench):
    # Its shares: what else runs is not to take what the quota leaves.
    procs = bench.group("cpu", {"cpu.cfs_quota_us": "20000", "cpu.shares": "262144"}, {"cpu.max": "20000 100000", "cpu.weight": "10000"})
    pid = bench.bios(SPINNING)
    write(procs, pid)
    return pid


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def vcpu_quota(bench):
    # As libvirt groups a domain's threads.
    procs = bench.group("cpu", {}, {"cpu.weight": "10000"})
    whole = os.path.dirname(procs)
    vcpu = f"{whole}/vcpu0"
    os.mkdir(vcpu)
    bench.stack.callback(lambda: remove_group(vcpu))
    try:
        write(f"{vcpu}/cgroup.type", "threaded")
        write(f"{whole}/cgroup.subtree_control", "+cpu")
        write(f"{vcpu}/cpu.max", "20000 100000")
    except OSError as error:
        raise NotPlanted(f"no control groups of threads: {error}") from error
    pid = bench.bios(SPINNING)
    write(procs, pid)
    threads = bench.monitor("query-cpus-fast")
    write(f"{vcpu}/cgroup.threads", threads[0]["thread-id"])
    return pid


def setting(path, value):
    """Plants the value of a setting of the host."""
    def plant(bench):
        before = read(path).strip()
        if not before:
            raise NotPlanted(f"no {path}")
        bench.stack.callback(lambda: write(path, before))
        write(path, value)
        return bench.bios(IDLE, accelerator="kvm")
    return plant


def limit(bench):
    return bench.bios(reading(0x81, 14), *bench.disk("d", ",throttling.iops-total=50"))


def slow_disk(bench):
    return bench.bios(reading(0x81, 14), "-drive", "if=none,id=d,format=raw,file.driver=null-co,file.size=64M,file.read-zeroes=on,file.latency-ns=40000000",
                      "-device", "virtio-blk-pci,drive=d,id=disk-d")


def write_through(bench):
    return bench.linux("write", *bench.disk("d", ",cache=writethrough"))


def small_cache(bench):
    path = bench.path("large.qcow2")
    qcow2(path, 16 << 30)
    return bench.bios(reading(0x81, 24), "-drive", f"if=none,id=d,format=qcow2,file={path},l2-cache-size=128K", "-device", "virtio-blk-pci,drive=d,id=disk-d")


def memory(bench):
    # Under TCG: KVM's faults in the background count for a worker of the kernel's.
    procs = bench.group("memory", {"memory.limit_in_bytes": str(128 * MIB)}, {"memory.max": str(128 * MIB)})
    path = bench.path("memory")
    with open(path, "wb") as file:
        for _ in range(320):
            file.write(b"\7" * MIB)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    boot = bench.put("boot", MEMORY + bytes(MIB))
    return bench.vm("-accel", "tcg", "-m", "320", "-object", f"memory-backend-file,id=m,size=320M,mem-path={path},share=on", "-machine", "memory-backend=m",
                    "-drive", f"if=ide,format=raw,file={boot}", procs=procs)


def uart(bench):
    return bench.vm("-accel", "kvm", "-m", "32", "-bios", bench.put("uart.rom", UART), "-serial", "null")


def hpet(bench):
    return bench.bios(HPET, accelerator="kvm")


def flood(bench):
    # In the box a large answer takes too long for many to be given, and a vCPU that computes takes the CPU of who asks.
    command, code = ("query-status", IDLE) if bench.box_guest else ("qom-list-types", SPINNING)
    pid = bench.bios(code)
    ended = threading.Event()
    path = bench.path(f"own{bench.number}")

    def ask():
        with socket.socket(socket.AF_UNIX) as stream, contextlib.suppress(OSError, ValueError):
            stream.connect(path)
            with stream.makefile("rw") as lines:
                lines.write('{"execute":"qmp_capabilities"}\n')
                while not ended.is_set():
                    lines.write(f'{{"execute":"{command}"}}\n' * 10)
                    lines.flush()
                    for _ in range(10):
                        lines.readline()

    thread = threading.Thread(target=ask)
    bench.stack.callback(lambda: (ended.set(), thread.join(10)))
    thread.start()
    return pid


def luks(bench, names, *options):
    """The arguments of disks that QEMU encrypts, by a cipher without instructions of its own."""
    secret = ["-object", "secret,id=key,data=secret"]
    bench.vm("-S", "-m", "16", *secret)
    disks = []
    for name in names:
        file = bench.put(f"{name}.luks", b"")
        bench.monitor("blockdev-add", **{"driver": "file", "filename": file, "node-name": name})
        settings = {"driver": "luks", "file": name, "size": 64 * MIB, "key-secret": "key", "cipher-alg": "serpent-256",
                    "hash-alg": "sha512", "iter-time": 10}
        for attempt in range(5):  # it fails where the CPU time has not grown between two readings
            bench.monitor("blockdev-create", **{"job-id": f"{name}{attempt}", "options": settings})
            while (job := bench.monitor("query-jobs")[-1])["status"] != "concluded":
                time.sleep(0.1)
            bench.monitor("job-dismiss", id=f"{name}{attempt}")
            if "error" not in job:
                break
        bench.monitor("blockdev-del", **{"node-name": name})
        disks += ["-drive", f"if=none,id={name},driver=luks,key-secret=key,file.driver=file,file.filename={file}",
                  "-device", ",".join([f"virtio-blk-pci,drive={name},id=disk-{name}", *options])]
    bench.monitor("quit")
    return secret + disks


def alone(bench, pid, tid):
    """Gives a thread of a VM in the box one of its two CPUs, so that no CPU is what it waits for."""
    if bench.box_guest and len(bench.cpus) > 1:
        for all_threads, cpu, target in ((["-a"], bench.cpus[1], pid), ([], bench.cpus[0], tid)):
            subprocess.run(["taskset", *all_threads, "-p", "-c", str(cpu), str(target)], check=True, capture_output=True)
    return pid


def encrypted_disk(bench):
    pid = bench.linux("two-disks-1024", *luks(bench, ["d"]))
    return alone(bench, pid, pid)


def shared_iothread(bench):
    disks = luks(bench, ["d", "e"], "iothread=shared")
    # In the box a second has few large requests, and who makes few is not in need of a thread of its own.
    kib = 256 if bench.box_guest else 1024
    pid = bench.linux(f"two-disks-{kib}", "-object", "iothread,id=shared", *disks)
    return alone(bench, pid, bench.monitor("query-iothreads")[0]["thread-id"])


def tree(bench, count):
    folder = bench.path("tree")
    os.makedirs(folder, exist_ok=True)
    for number in range(count):
        with open(f"{folder}/{number}", "w") as file:
            file.write("x" * 2048)
    return folder


def fid_list(bench):
    if bench.box_guest:
        raise NotPlanted("a request's VM exits take so long there that the list costs nothing")
    if not os.access(QEMU_5_2, os.X_OK):
        raise NotPlanted("no QEMU 5.2: vmtax get qemu 5.2")
    return bench.linux("9p", "-virtfs", f"local,path={tree(bench, 20000)},mount_tag=src,security_model=none", program=QEMU_5_2, memory="256M")


def starved_virtiofsd(bench):
    if not VIRTIOFSD:
        raise NotPlanted("no virtiofsd")
    if len(bench.cpus) < 2:
        raise NotPlanted("one CPU")
    path, cpu = bench.path("fs.sock"), bench.cpus[1]
    source = ["-o", f"source={tree(bench, 500)}"] if VIRTIOFSD.startswith("/usr/lib/qemu") else [f"--shared-dir={tree(bench, 500)}"]
    bench.process("taskset", "-c", str(cpu), VIRTIOFSD, f"--socket-path={path}", *source)
    while not os.path.exists(path):
        time.sleep(0.1)
    pid = bench.linux("virtiofs", "-chardev", f"socket,id=fs,path={path}", "-device", "vhost-user-fs-pci,chardev=fs,tag=src",
                      "-object", f"memory-backend-memfd,id=m,size={bench.memory},share=on", "-machine", "memory-backend=m")
    subprocess.run(["taskset", "-a", "-p", "-c", str(bench.cpus[0]), str(pid)], check=True, capture_output=True)
    bench.hog(cpu)
    bench.hog(cpu)
    return pid


def paused(bench):
    pid = bench.bios(SPINNING)
    bench.monitor("stop")
    return pid


# The name, how it is planted, and the rules of which one has to come first.
FAULTS = [
    ("cpu-hog", cpu_hog, ["vm-run-queue-wait", "vcpu-run-queue-wait"]),
    ("cpu-quota", quota, ["vm-throttled"]),
    ("vcpu-quota", vcpu_quota, ["vm-throttled"]),
    ("io-limit", limit, ["vm-io-limit"]),
    ("slow-disk", slow_disk, ["vm-slow-device", "vm-slow-requests", "vm-queued-requests"]),
    ("write-through", write_through, ["vm-write-through"]),
    ("qcow2-cache", small_cache, ["vm-qcow2-l2-cache"]),
    ("memory", memory, ["vm-swapped", "vm-memory-pressure"]),
    ("uart", uart, ["uart-polling", "serial-output"]),
    ("hpet", hpet, ["hpet-clock"]),
    ("monitor-flood", flood, ["vm-monitor-flood"]),
    ("encrypted-disk", encrypted_disk, ["vm-busy-thread"]),
    ("shared-iothread", shared_iothread, ["vm-shared-iothread"]),
    ("9p-fid-list", fid_list, ["vm-9p-fid-list"]),
    ("virtiofsd", starved_virtiofsd, ["vm-virtiofsd-run-queue-wait"]),
    ("paused", paused, ["vm-stopped"]),
    ("ksm", setting("/sys/kernel/mm/ksm/run", 1), ["setting-ksm"]),
    ("no-halt-polling", setting("/sys/module/kvm/parameters/halt_poll_ns", 0), ["setting-no-halt-polling"]),
]


def healthy(bench, number):
    """One of six kinds of healthy VMs."""
    kinds = [
        ("idle", lambda: bench.bios(IDLE)),
        ("busy CPU", lambda: bench.bios(SPINNING)),
        ("busy disk", lambda: bench.bios(reading(0x81, 14), *bench.disk("d", ",throttling.iops-total=1000000"))),
        ("idle, Linux", lambda: bench.linux("idle")),
        ("busy CPU, Linux", lambda: bench.linux("cpu")),
        ("busy disk, Linux", lambda: bench.linux("read", *bench.disk("d", ",cache=none"))),
    ]
    kinds = kinds if bench.kernel or bench.box_guest else kinds[:3]
    name, start = kinds[number % len(kinds)]
    return name, start()


def findings(command, pid):
    """The rules that fire, the first first, and those of settings worth checking."""
    words = [str(pid) if word == "PID" else word for word in shlex.split(command)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"bench: {shlex.join(words)} failed:\n{done.stderr}")
    document = json.loads(done.stdout.splitlines()[0] if "vms" in done.stdout[:200] else done.stdout)
    if "vms" in document:
        found, settings = document["vms"][0]["findings"] if document["vms"] else [], []
    else:
        found = document["findings"]
        found, settings = (found["causes"], found["settings"]) if isinstance(found, dict) else (found, [])
    return [[finding["rule"] for finding in rules] for rules in (found, settings)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    vmtax = os.path.abspath(f"{target}/x86_64-unknown-linux-gnu/release/vmtax")
    parser.add_argument("--kernel", default=os.environ.get("VMTAX_TEST_KVM_GUEST"), type=os.path.abspath)
    parser.add_argument("--command", default=f"{vmtax} diagnose PID --json")
    parser.add_argument("--accelerator", default="tcg", choices=["tcg", "kvm"], help="of guests that firmware is enough for")
    parser.add_argument("--box-guest", help="the folder of the box's guest, for guests with Linux")
    parser.add_argument("--guest-program", help="bench/diagnose_guest.c, compiled, for that guest")
    parser.add_argument("--only", default="", help="faults, separated by commas")
    parser.add_argument("--healthy", default=50, type=int, help="healthy VMs")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    needed = ["qemu-system-x86_64", "taskset", shlex.split(arguments.command)[0]] + ["cc"] * bool(arguments.kernel)
    missing = [name for name in needed if not shutil.which(name)] + ["root"] * (os.geteuid() != 0)
    unknown = only - {name for name, _, _ in FAULTS}
    if missing or unknown:
        print("bench: missing: " + ", ".join(missing) if missing else f"bench: no fault {', '.join(unknown)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    planted = right = alarms = seen = 0
    # On a disk, so that writes cost what they do.
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-", dir="/var/tmp") as scratch:
        if arguments.kernel:
            guest = os.path.join(scratch, "guest")
            subprocess.run(["cc", "-O1", "-static", "-o", guest, f"{HERE}/diagnose_guest.c"], check=True)
            with open(os.path.join(scratch, "guest.cpio"), "wb") as file:
                file.write(archive({"init": read_bytes(guest)}))
        os.chmod(scratch, 0o755)
        for name, plant, expected in FAULTS:
            if only and name not in only:
                continue
            with contextlib.ExitStack() as stack:
                try:
                    pid = plant(Bench(scratch, arguments, stack))
                except NotPlanted as why:
                    print(f"{name:16} not planted: {why}", flush=True)
                    continue
                time.sleep(5)
                rules, settings = findings(arguments.command, pid)
            planted += 1
            named = settings if expected[0].startswith("setting-") and not rules else rules[:1]
            is_found = any(rule in expected for rule in named)
            right += is_found
            print(f"{name:16} {'ok' if is_found else 'MISSED':7} {', '.join(rules + settings) or '–'}", flush=True)
            remove_files(scratch)
        for number in range(arguments.healthy):
            with contextlib.ExitStack() as stack:
                name, pid = healthy(Bench(scratch, arguments, stack), number)
                time.sleep(5)
                rules, _ = findings(arguments.command, pid)
            seen += 1
            alarms += bool(rules)
            print(f"healthy {number + 1:3} {'ALARM' if rules else 'ok':7} {name}: {', '.join(rules) or '–'}", flush=True)
            remove_files(scratch)
    print(f"{right} of {planted} planted faults came first; {alarms} of {seen} healthy VMs have a finding")
    return 0 if right == planted and not alarms else 1


def remove_files(scratch):
    for name in os.listdir(scratch):
        if name in ("guest", "guest.cpio"):
            continue
        path = os.path.join(scratch, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


if __name__ == "__main__":
    sys.exit(main())
