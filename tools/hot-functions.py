#!/usr/bin/env python3
"""Writes crates/switchboard/hot-functions.txt: the functions that run in every agent's session.

The linker puts them side by side (crates/switchboard/build.rs), so that the system holds little else of the program in
memory. What was written or changed since the list was made is not among them, and each such function may cost as much
as 64 KiB: run this before a release, with valgrind installed.

    tools/hot-functions.py

It has cargo build the program with names in it, runs `switchboard mcp` under callgrind, once until it has listed its
tools and has nothing more to do, and once through a few calls of each kind, and has cargo build the program that the
list is for. What runs at the start comes first in the list, then what calls need, then what ends a session. With
`--no-build` it takes what is in target/release, which must have names in it, and builds nothing.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
PROGRAM = RELEASE / "switchboard"
LIST = ROOT / "crates" / "switchboard" / "hot-functions.txt"
CHILDREN = 20
# Longer than a session under callgrind goes on with what it began at its start.
SETTLE_SECONDS = 3


class Session:
    """An MCP client of `switchboard mcp`, which runs under callgrind."""

    def __init__(self, env, workspace, profile):
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"]
        self.profile = profile
        self.process = subprocess.Popen(
            [*valgrind, f"--callgrind-out-file={profile}", PROGRAM, "mcp"],
            cwd=workspace,
            env={**env, "SWITCHBOARD_AGENT_NAME": "claude"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.last = 0

    def say(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.last += 1
        self.say({"id": self.last, "method": method, "params": params})
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self.last:
                break
        if "error" in answer or answer["result"].get("isError"):
            raise SystemExit(f"{method} {params} failed: {answer}")
        return answer["result"]

    def begin(self):
        client = {"name": "hot-functions", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self.say({"method": "notifications/initialized"})
        self.ask("tools/list", {})

    def call(self, tool, arguments):
        self.ask("tools/call", {"name": tool, "arguments": arguments})

    def ran(self):
        """The instructions that ran until now."""
        time.sleep(SETTLE_SECONDS)
        maps = Path(f"/proc/{self.process.pid}/maps").read_text()
        self.base = int(re.search(rf"^([0-9a-f]+)-.* {re.escape(str(PROGRAM))}$", maps, re.MULTILINE)[1], 16)
        subprocess.run(["callgrind_control", "--dump", str(self.process.pid)], check=True, capture_output=True)
        return instructions(Path(f"{self.profile}.1"), self.base)

    def end(self):
        """Ends the session. The instructions that ran since the last look."""
        self.process.stdin.close()
        self.process.wait()
        return instructions(self.profile, self.base)


def instructions(profile, base):
    """The addresses in the program of what ran. Where valgrind does not see whose they are, `base` was added to them."""
    offsets, offset, found = {f"ob={PROGRAM}": 0, "ob=???": base}, None, set()
    with profile.open() as lines:
        for line in lines:
            if line.startswith("ob="):
                offset = offsets.get(line.rstrip())
            elif offset is not None and line.startswith("0x"):
                found.add(int(line.split(maxsplit=1)[0], 16) - offset)
    return found


class Functions:
    """The functions of the program, by their addresses."""

    def __init__(self):
        symbols = subprocess.run(["nm", "-nS", PROGRAM], check=True, capture_output=True, text=True).stdout
        rows = [parts for parts in map(str.split, symbols.splitlines()) if len(parts) == 4 and parts[2] in "tTwW"]
        if len(rows) < 1000:
            raise SystemExit(f"{PROGRAM} has no names in it: run this without --no-build")
        self.begins = [int(address, 16) for address, *_ in rows]
        self.ends = [int(address, 16) + int(size, 16) for address, size, *_ in rows]
        # The number behind the name of a function that was moved between parts of the program is another one everywhere.
        self.names = [re.sub(r"\.llvm\.\d+$", ".llvm.*", name) for *_, name in rows]

    def of(self, addresses):
        """The names of the functions that these instructions are of, in the order of the program.

        Functions that turned out the same are one, with several names: the linker may know it by any of them.
        """
        found = set()
        for address in addresses:
            number = bisect_right(self.begins, address) - 1
            if number >= 0 and address < self.ends[number]:
                found.add(self.begins[number])
        return [name for begin, name in zip(self.begins, self.names) if begin in found]


def trace(folder, with_calls):
    """What runs in one session until it waits, and what it ends with."""
    home, workspace = folder / "home", folder / "workspace"
    home.mkdir(parents=True)
    workspace.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def switchboard(*args):
        subprocess.run([PROGRAM, *args], cwd=workspace, env=env, check=True, capture_output=True)

    switchboard("init")
    switchboard("agents", "register", "codex")
    for number in range(CHILDREN):
        switchboard("suite", "add", f"echo{number}", "--", RELEASE / "bench", "echo-child")
    session = Session(env, workspace, folder / "callgrind.out")
    session.begin()
    for _ in range(3 if with_calls else 0):
        session.call("send_message", {"recipient": "codex", "action": "status_update", "payload": "hello"})
        session.call("send_message", {"recipient": "claude", "action": "status_update", "payload": "hello"})
        session.call("check_inbox", {})
        session.call("wait_for_message", {"timeout": 1})
        session.call("echo0_suite", {"action": "introspect"})
        session.call("echo0_suite", {"action": "call", "subtool": "echo", "args": {"message": "hello"}})
    return session.ran(), session.end()


def cargo(*args):
    subprocess.run(["cargo", *args], cwd=ROOT, check=True)


def main():
    is_built = "--no-build" in sys.argv[1:]
    if not is_built:
        cargo("build", "--release", "--locked", "--package", "bench")
        program = ["--package", "switchboard", "--bin", "switchboard"]
        cargo("rustc", "--release", "--locked", *program, "--", "-C", "strip=none")
    functions = Functions()
    with tempfile.TemporaryDirectory() as folder:
        start, start_end = trace(Path(folder) / "start", with_calls=False)
        calls, calls_end = trace(Path(folder) / "calls", with_calls=True)
    parts = {"at the start": start, "in calls": calls, "at the end": start_end | calls_end}
    listed, lines = set(), []
    for title, addresses in parts.items():
        names = [name for name in dict.fromkeys(functions.of(addresses)) if name not in listed]
        listed.update(names)
        lines += [f"# {title}", *names]
        print(f"{title}: {len(names)} functions")
    LIST.write_text("".join(f"{line}\n" for line in lines))
    if not is_built:
        cargo("build", "--release", "--locked")


if __name__ == "__main__":
    main()
