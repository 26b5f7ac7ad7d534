"""A small VMM of the tests' own: a guest of KVM without a kernel, whose vCPUs count in user mode, or halt.

usage: vmm.py [--vcpus N] [--halt] [--image FILE] [--tap NAME [--pings NETWORK]] [--fork] [--pass] [--threads NAME] [--id NAME]

It prints "ready", and the PID of a helper where it has one, then runs until its standard input ends. --fork: a child has
copies of all descriptors and of the memory. --pass: another program is given all of KVM's descriptors. --threads: a prefix of
the vCPU threads' names, in which + stands for a blank. --pings: every few milliseconds a vCPU writes to a doorbell, for which a
thread sends a ping from NETWORK.2 to NETWORK.1 on the tap; for what it then reads there it interrupts the guest. Before it
sends, and before it interrupts, it works for LATE ns. --id is not read: other programs have it.
"""

import argparse
import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

CREATE_VM, CREATE_VCPU, VCPU_MMAP_SIZE, RUN = 0xAE01, 0xAE41, 0xAE04, 0xAE80
SET_TSS_ADDR, SET_MEMORY, CREATE_IRQCHIP = 0xAE47, 0x4020AE46, 0xAE60
GET_SREGS, SET_SREGS, SET_REGS = 0x8138AE83, 0x4138AE84, 0x4090AE82
SUPPORTED_CPUID, SET_CPUID2 = 0xC008AE05, 0x4008AE90
IOEVENTFD, SIGNAL_MSI = 0x4040AE79, 0x4020AEA5
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
MEMORY = 64 << 20
PML4, PDPT, DIRECTORY, GDT, TSS, CODE, STACK = 0x2000, 0x3000, 0x4000, 0x5000, 0x6000, 0x10000, 0x1F000
# Where the guest sees the doorbell, and its physical address; what the thread of the tap works, ns.
SEEN, DOORBELL, LATE = 2 << 20, 0xD0000000, 400_000
libc = ctypes.CDLL(None, use_errno=True)


def memory_of(vm):
    """The guest's memory: page tables of one page of 2 MiB, descriptors, and code that counts for ever (a halt at its side)."""
    memory = mmap.mmap(-1, MEMORY, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for table, entry in [(PML4, PDPT), (PDPT, DIRECTORY), (DIRECTORY, 1 << 7)]:
        memory[table : table + 8] = struct.pack("<Q", entry | 7)
    descriptors = [0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF, 0x00CFF3000000FFFF, 0x00AFFB000000FFFF]
    memory[GDT : GDT + 40] = struct.pack("<5Q", *descriptors)
    memory[CODE : CODE + 5] = bytes([0x48, 0xFF, 0xC9, 0x75, 0xFB])
    memory[CODE + 16 : CODE + 19] = bytes([0xF4, 0xEB, 0xFD])
    # Counts down from a number, writes to the doorbell, and goes on.
    memory[DIRECTORY + 8 : DIRECTORY + 16] = struct.pack("<Q", DOORBELL | 1 << 7 | 7)
    memory[CODE + 32 : CODE + 39] = bytes([0x48, 0xC7, 0xC1]) + struct.pack("<I", 4_000_000)
    memory[CODE + 39 : CODE + 44] = bytes([0x48, 0xFF, 0xC9, 0x75, 0xFB])
    memory[CODE + 44 : CODE + 54] = bytes([0xC6, 0x04, 0x25]) + struct.pack("<I", SEEN) + bytes([1, 0xEB, 0xEA])
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(vm, SET_MEMORY, struct.pack("<IIQQQ", 0, 0, 0, MEMORY, address))
    return memory


def segment(base, limit, selector, kind, dpl, db, s, long):
    return struct.pack("<QIH8Bxx", base, limit, selector, kind, 1, dpl, db, s, long, 1, 0)


def vcpu_of(kvm, vm, number, halts, code_offset):
    """A vCPU that is about to run in 64-bit mode: as a kernel if it halts, else as a user."""
    vcpu = fcntl.ioctl(vm, CREATE_VCPU, number)
    run = mmap.mmap(vcpu, fcntl.ioctl(kvm, VCPU_MMAP_SIZE))
    cpuid = bytearray(struct.pack("<II", 256, 0) + bytes(256 * 40))
    fcntl.ioctl(kvm, SUPPORTED_CPUID, cpuid)
    fcntl.ioctl(vcpu, SET_CPUID2, cpuid)
    dpl, code, data = (0, 0x08, 0x10) if halts else (3, 0x23, 0x1B)
    sregs = bytearray(312)
    fcntl.ioctl(vcpu, GET_SREGS, sregs)
    data = segment(0, 0xFFFFFFFF, data, 3, dpl, 1, 1, 0)
    sregs[0:24] = segment(0, 0xFFFFFFFF, code, 11, dpl, 0, 1, 1)
    sregs[24:144] = data * 5
    sregs[144:168] = segment(TSS, 0x67, 0, 11, 0, 0, 0, 0)
    sregs[192:208] = struct.pack("<QH6x", GDT, 39)
    sregs[208:224] = bytes(16)
    cr0, cr4, efer = 0x80000033, 1 << 5 | 1 << 9 | 1 << 10, 1 << 8 | 1 << 10
    sregs[224:280] = struct.pack("<5QQQ", cr0, 0, PML4, cr4, 0, efer, struct.unpack("<Q", sregs[272:280])[0])
    fcntl.ioctl(vcpu, SET_SREGS, bytes(sregs))
    registers = [0] * 18
    registers[2], registers[6], registers[16], registers[17] = 1 << 63, STACK, CODE + code_offset, 2
    fcntl.ioctl(vcpu, SET_REGS, struct.pack("<18Q", *registers))
    return vcpu, run


def runs(vcpu, name):
    if name:
        libc.prctl(15, name.encode(), 0, 0, 0)
    while True:
        try:
            fcntl.ioctl(vcpu, RUN, 0)
        except InterruptedError:
            pass


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF)


def ping(network):
    """An echo request to the host, in a frame for any card."""
    own, host = (socket.inet_aton(f"{network}.{number}") for number in (2, 1))
    echo = struct.pack(">BBHHH", 8, 0, 0, 7, 7) + bytes(32)
    echo = echo[:2] + checksum(echo) + echo[4:]
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(echo), 1, 0, 64, 1, 0, own, host)
    header = header[:10] + checksum(header) + header[12:]
    return bytes([0xFF] * 6 + [2, 0, 0, 0, 0, 2]) + b"\x08\0" + header + echo


def works():
    end = time.monotonic_ns() + LATE
    while time.monotonic_ns() < end:
        pass


def moves_packets(vm, doorbell, tap, frame):
    """The thread of the network card: an event loop for the doorbell and the tap."""
    loop = select.epoll()
    loop.register(doorbell, select.EPOLLIN)
    loop.register(tap, select.EPOLLIN)
    while True:
        for ready, _ in loop.poll():
            try:
                if ready == doorbell:
                    os.read(doorbell, 8)
                    works()
                    os.write(tap, frame)
                    continue
                while True:
                    os.read(tap, 2048)
                    works()
            except BlockingIOError:
                fcntl.ioctl(vm, SIGNAL_MSI, struct.pack("<4I16x", 0xFEE00000, 0, 0x40, 0))
            except OSError:
                # The tap is not up.
                pass


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--vcpus", type=int, default=1)
    options.add_argument("--halt", action="store_true")
    options.add_argument("--image")
    options.add_argument("--tap")
    options.add_argument("--pings")
    options.add_argument("--fork", action="store_true")
    options.add_argument("--pass", dest="passed", action="store_true")
    options.add_argument("--threads")
    options.add_argument("--id")
    options = options.parse_args()
    kvm = os.open("/dev/kvm", os.O_RDWR)
    vm = fcntl.ioctl(kvm, CREATE_VM, 0)
    fcntl.ioctl(vm, SET_TSS_ADDR, 0x7FFBD000)
    if options.halt or options.pings:
        fcntl.ioctl(vm, CREATE_IRQCHIP)
    memory = memory_of(vm)
    code = 16 if options.halt else 32 if options.pings else 0
    vcpus = [vcpu_of(kvm, vm, number, options.halt, code) for number in range(options.vcpus)]
    held = [memory]
    if options.image:
        held.append(os.open(options.image, os.O_RDWR))
    if options.tap:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("<16sH22x", options.tap.encode(), IFF_TAP | IFF_NO_PI))
        held.append(tap)
    if options.pings:
        doorbell = os.eventfd(0)
        fcntl.ioctl(vm, IOEVENTFD, struct.pack("<QQIiI36x", 0, DOORBELL, 1, doorbell, 0))
        card = (vm, doorbell, tap, ping(options.pings))
        threading.Thread(target=moves_packets, args=card, daemon=True).start()
    helper = 0
    if options.fork:
        helper = os.fork()
        if helper == 0:
            sys.stdin.read()
            os._exit(0)
    if options.passed:
        fds = [vm] + [vcpu for vcpu, _ in vcpus]
        helper = subprocess.Popen(["cat"], pass_fds=fds).pid
    for number, (vcpu, _) in enumerate(vcpus):
        name = options.threads.replace("+", " ") + str(number) if options.threads else None
        threading.Thread(target=runs, args=(vcpu, name), daemon=True).start()
    print("ready", helper, flush=True)
    sys.stdin.read()
    os._exit(0)


main()
