"""Writes down what a client and an agent say to each other, or plays the agent from what was written.

    transcript.py record FILE PROGRAM [ARGUMENT ...]
    transcript.py replay FILE [ARGUMENT ...]

One line of the file is one line of the conversation, with `>` for the client's and `<` for the agent's. When an
agent is played, each of the client's lines is waited for before the agent goes on, and has to ask for the same.
What differs from run to run, the id of the prompt, is taken from the client.
"""

import json
import subprocess
import sys
import threading


def record(path, command):
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lock = threading.Lock()

    def pass_on(mark, source, target, file):
        for line in source:
            with lock:
                file.write(mark + line)
                file.flush()
            target.write(line)
            target.flush()
        target.close()

    with open(path, "wb") as file:
        streams = (b"> ", sys.stdin.buffer, agent.stdin, file)
        threading.Thread(target=pass_on, args=streams, daemon=True).start()
        pass_on(b"< ", agent.stdout, sys.stdout.buffer, file)
    return agent.wait()


def prompt_id(line):
    return json.loads(line).get("params", {}).get("clientUserMessageId")


def replay(path):
    known = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            mark, line = line[0], line[2:]
            if mark == "<":
                for recorded, actual in known.items():
                    line = line.replace(recorded, actual)
                sys.stdout.write(line)
                sys.stdout.flush()
                continue
            said = sys.stdin.readline()
            if not said:
                return 0
            for key in ("method", "id"):
                expected, actual = json.loads(line).get(key), json.loads(said).get(key)
                if expected != actual:
                    sys.stderr.write(f"{key} is {actual!r} and was {expected!r}: {said}")
                    return 1
            if prompt_id(line):
                known[prompt_id(line)] = prompt_id(said)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    mode, path, *rest = sys.argv[1:]
    sys.exit(record(path, rest) if mode == "record" else replay(path))
