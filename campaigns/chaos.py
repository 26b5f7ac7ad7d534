#!/usr/bin/env python3
"""Kills one process of a running vmtax by SIGKILL, at a random moment, again and again: the controller, a watchdog, QEMU,
a share's server, the agent. Then no process of that run may be left within a bound, and after the next start of vmtax
nothing else: no mount, tracefs instance, probe, control group, loop device, scratch folder. Each recording opens.

    campaigns/chaos.py [--vmtax FILE] [--kills N] [--seed N] [--commands LIST] [--together] [--state DIR] [--bound SECONDS]

The campaign goes on where it stopped: DIR/kills.jsonl has a line for each kill, DIR/failed-N what kill N left. The command,
the moment and the victim of kill N follow from the seed. The moment is uniform over the time that the command takes without
a kill. In a Linux guest the agent ends with its guest, which a monitor of the campaign's own resets. With --together the
controller and all watchdogs are killed at once, instead of one process. Exits 0 when all kills passed, 1 when one failed, 2
when something is missing. As root.
"""

import collections
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import campaign

ROLES = ("controller", "watchdog", "qemu", "server", "agent")
# A hang is reported long before the timeouts of vmtax.
TIMEOUTS = ["--timeout=60s", "--boot-timeout=60s"]
# The guest of VMTAX_TEST_KVM_GUEST has no NFS.
METHODS = {"tcg": ["9p", "nfs4", "virtiofs"], "kvm": ["9p", "virtiofs", "disk"]}
NEXT = ["run", "-q", "--machine=native", "--rounds=1", "cpu", "cpu.time=0.02", "cpu.max-prime=100"]


def commands():
    """Name to arguments and weight. Guests of TCG take ten times as long to boot: fewer of them."""
    read = ["disk", "count=50", "time=0"]
    once = ["--rounds=1", *TIMEOUTS]
    micro = "micro-kvm,micro-tcg" if os.access("/dev/kvm", os.W_OK) else "micro-tcg"
    known = {
        "run-micro": (["run", f"--machine={micro}", *once, "exits", "count=1000"], 3),
        "layers-micro": (["layers", "--machine=micro-tcg", *once, "count=50"], 3),
    }
    for machine, options, weight in [("tcg", campaign.tcg(), 1), ("kvm", campaign.kvm(), 3)]:
        if options is None:
            continue
        measured, native = [*options, *once], ["--machine=native," + options[0].split("=")[1], *options[1:], *once]
        known |= {
            f"run-{machine}": (["run", *native, "cpu", "cpu.time=0.3", *read], weight),
            f"layers-{machine}": (["layers", *measured, "count=20"], weight),
            f"exec-{machine}": (["exec", *native, "--", "sh", "-c", "sleep 0.3; ls /usr/bin"], weight),
            f"profile-{machine}": (["profile", *options, *TIMEOUTS, "--trace-duration=200ms", *read], weight),
            f"share-{machine}": (["run", *measured, f"../share-{machine}.toml"], weight),
        }
    return known


# A report of trials that all failed: it names the first failure.
NO_RESULT = re.compile(r"trials? ha(ve no|s a) result")


def share(machine):
    """A plan of one workload: `vmtax share` has more of them."""
    variants = "".join(f'[[variant]]\nname = "{method}"\nset = {{ share = "{method}" }}\n' for method in METHODS[machine])
    return (f'schema = 1\nname = "share"\nstudy = "share"\nrounds = 1\nmachines = ["{machine}"]\n'
            f'[tree]\nfiles = 20\nbytes = 262144\n{variants}[[workload]]\nname = "tree"\n')


def reset(monitor):
    """Has QEMU reset its guest, whose agent so ends; False where no guest of this run is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(2)
        try:
            stream.connect("\0" + monitor)
            for command in ("qmp_capabilities", "system_reset"):
                stream.recv(65536)
                stream.sendall(json.dumps({"execute": command}).encode() + b"\n")
            stream.recv(65536)
        except OSError:
            return False
    return True


class Campaign:
    def __init__(self, arguments, known, state):
        self.vmtax, self.bound, self.together = arguments.vmtax, arguments.bound, arguments.together
        self.folder, self.known, self.state = Path(arguments.state), known, state
        self.took = {}
        for machine in METHODS:
            (self.folder / f"share-{machine}.toml").write_text(share(machine))

    def run(self, name, number):
        """A run of this command in a folder of its own, and the name of the campaign's monitor of its guests."""
        folder = self.folder / f"kill-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        run = campaign.Run(folder, f"{os.getpid()}-{number}")
        monitor = f"vmtax-chaos-{os.getpid()}-{number}"
        arguments, _ = self.known[name]
        chardev = f"socket,id=chaos,path={monitor},abstract=on,server=on,wait=off"
        qemu = [f"--qemu-arg={word}" for word in ("-chardev", chardev, "-mon", "chardev=chaos,mode=control")]
        run.start([self.vmtax, arguments[0], f"--dir={folder}/runs", *qemu, *arguments[1:]])
        return run, monitor

    def unhurt(self, name):
        """Seconds that a command takes when nothing is killed; measured once, then by each run that ended early."""
        for _ in range(3):
            if name in self.took:
                break
            begin = time.monotonic()
            run, _ = self.run(name, "none")
            status = run.wait(300)
            run.kill_all()
            if status == 0:
                self.took[name] = time.monotonic() - begin
            else:  # a busy host may reach a timeout
                print(f"{name} failed without a kill (status {status}): {run.err.read_text()[-500:]}", file=sys.stderr)
            shutil.rmtree(run.folder, ignore_errors=True)
        if name not in self.took:
            sys.exit(f"{name} fails without a kill")
        return self.took[name]

    def kill(self, run, monitor, random):
        """Kills one process, or those that --together names; gives the role and who it was."""
        by_role = collections.defaultdict(list)
        for process in run.processes():
            role = "controller" if process.pid == run.child.pid else process.role()
            by_role[role].append(process)
        if self.together:
            victims = by_role["controller"] + by_role["watchdog"]
            for process in victims:  # or a watchdog could do its work while the next one is killed
                os.kill(process.pid, signal.SIGSTOP)
            for process in victims:
                os.kill(process.pid, signal.SIGKILL)
            return "together", f"{len(victims)} processes"
        roles = [role for role in ROLES if by_role[role] or (role == "agent" and by_role["qemu"])]
        while roles:
            role = random.choice(roles)
            roles.remove(role)
            if role == "agent" and not by_role[role]:
                if reset(monitor):
                    return role, "a guest's"
                continue
            victim = random.choice(by_role[role])
            who = str(victim)
            try:
                os.kill(victim.pid, signal.SIGKILL)
                return role, who
            except OSError:
                continue
        return None, None

    def one(self, number):
        """One kill; gives what is kept of it."""
        random = campaign.drawn(self.state.settings["seed"], number)
        name = random.choices(list(self.known), [weight for _, weight in self.known.values()])[0]
        unhurt, fraction = self.unhurt(name), random.random()
        network = campaign.network()
        begin = time.monotonic()
        run, monitor = self.run(name, number)
        ended = run.wait(fraction * unhurt) is not None
        role, victim = (None, None) if ended else self.kill(run, monitor, random)
        record = {"number": number, "command": name, "victim": role, "process": victim, "at_s": round(fraction * unhurt, 2)}
        if role is None:
            run.wait(120)
            # This machine is faster than before: the next moments are chosen for that.
            self.took[name] = time.monotonic() - begin
            run.kill_all()
            shutil.rmtree(run.folder)
            return record
        failures = []
        alone = role in ("controller", "together")
        status = run.wait(30 + 2 * 60 + 5 * unhurt)
        if not alone and (why := campaign.crashed(status, run.err.read_text(errors="replace"))):
            failures.append(f"vmtax {why}")
        elif not alone and status != 0 and not run.err.read_text().strip():
            failures.append(f"vmtax ended with {status} and no message")
        took, processes = run.gone_after(self.bound)
        failures += [f"after {took:.1f} s there is still {process}" for process in processes]
        run.kill_all()
        if not alone:  # then it clears up itself, before it ends
            failures += [f"left by vmtax itself: {what} {names}" for what, names in run.left().items()]
        failures += self.opens(run)
        failures += [f"network: {name}" for name in campaign.network() - network]
        record |= {"status": status, "gone_s": round(took, 2), "failures": failures}
        run.put_away(failures, self.folder / f"failed-{number}")
        return record

    def opens(self, run):
        """The next start, which clears up; then each recording."""
        said = run.err.read_bytes()
        failures = []
        recordings = sorted(path for path in (run.folder / "runs").glob("*") if (path / "plan.toml").exists())
        status, _, error = run.again([self.vmtax, NEXT[0], f"--dir={run.folder}/runs", *NEXT[1:]])
        if status != 0:
            failures.append(f"the next start ended with {status}: {error[-300:]}")
        failures += [f"left after the next start: {what} {names}" for what, names in run.left().items()]
        status, listed, error = run.again([self.vmtax, "list", f"--dir={run.folder}/runs", "--json"])
        if status != 0:
            return failures + [f"list ended with {status}: {error[-300:]}"]
        states = {Path(row["folder"]).name: row["state"] for row in json.loads(listed)}
        for folder in recordings:
            state = json.dumps(states.get(folder.name))
            status, _, error = run.again([self.vmtax, "report", str(folder)])
            if campaign.crashed(status, error) or state == "null" or "amaged" in state:
                failures.append(f"{folder.name}: listed as {state}, report {status}: {error[-300:]}")
            elif status != 0 and "nfinished" not in state and not NO_RESULT.search(error):
                failures.append(f"{folder.name} is listed as {state}, but report ended with {status}: {error[-300:]}")
        (run.folder / "stderr").write_bytes(said)
        return failures


def summary(done, seed, bound):
    kills = [record for record in done if record["victim"]]
    roles = [role for role in (*ROLES, "together") if any(record["victim"] == role for record in kills)]
    print(f"{'kills':14}" + "".join(f"{role:>12}" for role in roles) + f"{'failed':>8}")
    for name in sorted({record["command"] for record in kills}):
        of = [record for record in kills if record["command"] == name]
        counts = (sum(record["victim"] == role for record in of) for role in roles)
        print(f"{name:14}" + "".join(f"{count:12}" for count in counts) + f"{sum(bool(r['failures']) for r in of):8}")
    counts = (sum(record["victim"] == role for record in kills) for role in roles)
    failed = [record for record in kills if record["failures"]]
    print(f"{'all':14}" + "".join(f"{count:12}" for count in counts) + f"{len(failed):8}")
    gone = sorted(record["gone_s"] for record in kills) or [0]
    print(f"{len(kills)} kills, seed {seed}; {len(done) - len(kills)} runs ended before their kill. Processes were gone after "
          f"{gone[len(gone) // 2]} s (median), {gone[-1]} s (longest), bound {bound} s.")
    for record in failed:
        print(f"FAILED kill {record['number']} of seed {seed}: {record['command']}, {record['victim']} {record['process']} "
              f"at {record['at_s']} s")
        for failure in record["failures"]:
            print(f"  {failure}")
    return failed


def main():
    parser = campaign.options(__doc__, commands(), "chaos")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--bound", type=float, default=5)
    arguments = parser.parse_args()
    known = commands()
    chosen = campaign.parts(arguments.commands, known)
    programs = [("qemu-system-x86_64", "qemu-system-x86")] + [("ganesha.nfsd", "nfs-ganesha")] * ("share-tcg" in chosen)
    if missing := campaign.needed(arguments.vmtax, programs):
        print("chaos: missing: " + "; ".join(missing), file=sys.stderr)
        return 2
    settings = {"seed": arguments.seed, "together": arguments.together}
    state = campaign.State(f"{arguments.state}/kills.jsonl", settings)
    work = Campaign(arguments, {name: known[name] for name in chosen}, state)

    def kills():
        while sum(bool(record["victim"]) for record in state.done) < arguments.kills:
            record = work.one(len(state.done))
            state.add(record)
            if record.get("failures"):
                print(f"kill {record['number']}: {record['failures'][0]}", file=sys.stderr, flush=True)

    campaign.interruptible(kills)
    return 1 if summary(state.done, state.settings["seed"], arguments.bound) else 0


if __name__ == "__main__":
    sys.exit(main())
