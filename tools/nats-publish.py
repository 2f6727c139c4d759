#!/usr/bin/env python3
"""Publishes messages of 1 KiB to a stream of a nats-server on this machine and says how fast that was.

    tools/nats-publish.py PORT MESSAGES AT_ONCE

The server needs JetStream. The stream `publish_test` is made anew and stays until the next run.
"""

import json
import socket
import sys
import time

STREAM = "publish_test"
BODY = b"x" * 1024


def main():
    port, messages, at_once = (int(argument) for argument in sys.argv[1:4])
    server = socket.create_connection(("127.0.0.1", port))
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers = server.makefile("rb")
    answers.readline()
    server.sendall(b'CONNECT {"verbose":false}\r\nSUB _answers.* 1\r\nPING\r\n')
    while answers.readline() != b"PONG\r\n":
        pass

    def answer():
        while True:
            line = answers.readline()
            if not line:
                sys.exit("the server has closed the connection")
            if line.startswith(b"MSG"):
                return json.loads(answers.read(int(line.split()[-1]) + 2))
            if line.startswith(b"PING"):
                server.sendall(b"PONG\r\n")

    def publish(subject, body, times=1):
        server.sendall(b"PUB %s _answers.1 %d\r\n%s\r\n" % (subject.encode(), len(body), body) * times)

    publish(f"$JS.API.STREAM.DELETE.{STREAM}", b"")
    answer()
    stream = {"name": STREAM, "subjects": [STREAM], "storage": "file", "num_replicas": 1}
    publish(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(stream).encode())
    made = answer()
    if "error" in made:
        sys.exit(made["error"]["description"])

    sent = kept = 0
    began = time.monotonic()
    while kept < messages:
        room = min(at_once - (sent - kept), messages - sent)
        if room > 0 and (room >= at_once // 4 or sent == kept):
            publish(STREAM, BODY, room)
            sent += room
        elif "seq" in answer():
            kept += 1
        else:
            sys.exit("the server did not keep a message")
    took = time.monotonic() - began
    print(f"{messages / took:.0f} messages a second, {1000 * took / messages:.2f} ms each")


main()
