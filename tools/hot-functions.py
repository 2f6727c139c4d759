#!/usr/bin/env python3
"""Writes crates/switchboard/hot-functions.txt: the functions that run in every agent's session.

The linker puts them side by side (crates/switchboard/build.rs), so that the system holds little else of the program in
memory. Run this before a release, with valgrind installed:

    cargo build --release -p bench
    cargo rustc --release -p switchboard --bin switchboard -- -C strip=none
    tools/hot-functions.py
    cargo build --release

`switchboard mcp` runs under callgrind, once until it has listed its tools and once through a few calls of each kind.
What runs at the start comes first in the list.
"""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
PROGRAM = RELEASE / "switchboard"
LIST = ROOT / "crates" / "switchboard" / "hot-functions.txt"
CHILDREN = 20


class Session:
    """An MCP client of `switchboard mcp`, which runs under callgrind."""

    def __init__(self, env, workspace, profile):
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={profile}"]
        self.process = subprocess.Popen(
            [*valgrind, PROGRAM, "mcp"],
            cwd=workspace,
            env={**env, "SWITCHBOARD_AGENT_NAME": "claude"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
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

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def trace(folder, with_calls):
    """The functions that ran in one session."""
    home, workspace, profile = folder / "home", folder / "workspace", folder / "callgrind.out"
    home.mkdir(parents=True)
    workspace.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def switchboard(*args):
        subprocess.run([PROGRAM, *args], cwd=workspace, env=env, check=True, capture_output=True)

    switchboard("init")
    switchboard("agents", "register", "codex")
    for number in range(CHILDREN):
        switchboard("suite", "add", f"echo{number}", "--", RELEASE / "bench", "echo-child")
    session = Session(env, workspace, profile)
    session.begin()
    for _ in range(3 if with_calls else 0):
        session.call("send_message", {"recipient": "codex", "action": "status_update", "payload": "hello"})
        session.call("send_message", {"recipient": "claude", "action": "status_update", "payload": "hello"})
        session.call("check_inbox", {})
        session.call("wait_for_message", {"timeout": 1})
        session.call("echo0_suite", {"action": "introspect"})
        session.call("echo0_suite", {"action": "call", "subtool": "echo", "args": {"message": "hello"}})
    session.end()
    return set(re.findall(r"^c?fn=\(\d+\) ([^\s']+)", profile.read_text(), re.MULTILINE))


def main():
    symbols = subprocess.run(["nm", "-n", PROGRAM], check=True, capture_output=True, text=True).stdout
    in_order = [parts[2] for parts in map(str.split, symbols.splitlines()) if len(parts) == 3 and parts[1] in "tTwW"]
    if len(in_order) < 1000:
        raise SystemExit(f"{PROGRAM} has no symbols: build it with `-C strip=none`, as this file says at its top")
    with tempfile.TemporaryDirectory() as folder:
        start = trace(Path(folder) / "start", with_calls=False)
        calls = trace(Path(folder) / "calls", with_calls=True) - start
    # The number behind the name of a function that was moved between parts of the program is another one everywhere.
    plain = lambda name: re.sub(r"\.llvm\.\d+$", ".llvm.*", name)
    ordered = dict.fromkeys([plain(name) for part in (start, calls) for name in in_order if name in part])
    LIST.write_text("".join(f"{name}\n" for name in ordered))
    print(f"{len(ordered)} functions in {LIST.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
