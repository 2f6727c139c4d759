"""A peer that implements the protocol like the existing Python implementation, and checks as little.

    python plain.py AGENT PORT CERT KEY CA [ENDPOINT]

Its server has only the routes below /swarm, over HTTP/1.1. It verifies nothing, refuses malformed requests with 422 and
`detail`, sends a date in `Retry-After`, and announces new members without their keys and without the headers of the
protocol. It reads one command per line and answers each with one line, which contains the answers to its own requests.
"""

import base64
import hashlib
import http.client
import json
import re
import ssl
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from urllib.parse import urlsplit

import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

AGENT, PORT, CERT, KEY, CA, *MORE = sys.argv[1:]
ENDPOINT = MORE[0] if MORE else f"https://127.0.0.1:{PORT}/swarm"
VERSION = "0.1.0"
UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.IGNORECASE)
TEXTS = ["protocol_version", "message_id", "timestamp", "recipient", "swarm_id", "type", "content", "signature"]

key = Ed25519PrivateKey.generate()
trusted = ssl.create_default_context(cafile=CA)
swarms, inbox, requests = {}, {}, []
# Statuses with which the next requests are answered instead.
instead = []
# Error of its clock, in seconds.
skew = 0
# Fields of `/info` that replace the true ones.
posed = {}


def public_key(of=None):
    return base64.b64encode((of or key).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def stamp(moment=None):
    moment = moment or datetime.now(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def call(method, url, body=None, headers=None):
    """Sends one request over HTTP/1.1; returns the status and the JSON of the answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=30, context=trusted)
    data = body.encode() if isinstance(body, str) else body and json.dumps(body).encode()
    connection.request(method, parts.path, data, {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    try:
        return response.status, json.loads(text), dict(response.getheaders())
    except ValueError:
        return response.status, None, dict(response.getheaders())


def named():
    return {"X-Agent-ID": AGENT, "X-Swarm-Protocol": VERSION}


def sign(message, by=None):
    signed = "".join(message[field] for field in ["message_id", "timestamp", "swarm_id", "recipient", "type", "content"])
    digest = hashlib.sha256(signed.encode()).digest()
    message["signature"] = base64.b64encode((by or key).sign(digest)).decode()
    return message


def message(swarm_id, recipient, content, kind="message", **more):
    return sign({
        "protocol_version": VERSION, "message_id": str(uuid.uuid4()), "timestamp": stamp(),
        "sender": {"agent_id": AGENT, "endpoint": ENDPOINT}, "recipient": recipient, "swarm_id": swarm_id,
        "type": kind, "content": content,
    }) | more


def member(agent, endpoint, public, joined_at=None):
    return {"agent_id": agent, "endpoint": endpoint, "public_key": public, "joined_at": joined_at or stamp()}


def tell(target, body, headers):
    return call("POST", target["endpoint"].rstrip("/") + "/message", body, headers)[0]


def others(swarm_id, *but):
    return [known for known in swarms[swarm_id]["members"] if known["agent_id"] not in (AGENT, *but)]


# The server.


async def take_message(request):
    body = await request.json()
    missing = [field for field in TEXTS if not isinstance(body.get(field), str)]
    missing += [field for field in ("message_id", "swarm_id") if field not in missing and not UUID.match(body[field])]
    if missing or not isinstance(body.get("sender"), dict):
        detail = [{"type": "missing", "loc": ["body", field], "msg": "Field required"} for field in missing]
        return JSONResponse({"detail": detail}, 422)
    inbox.setdefault(body["message_id"], body)
    await run_in_threadpool(follow, body)
    return JSONResponse({"status": "queued", "message_id": body["message_id"]})


def follow(body):
    """Applies a system message to the roster: in the flat form, from any sender."""
    if body["type"] != "system":
        return
    try:
        told = json.loads(body["content"])
    except ValueError:
        return
    swarm, agent = swarms.get(body["swarm_id"]), told.get("agent_id")
    if swarm is None:
        return
    if told.get("action") == "member_joined" and agent not in [known["agent_id"] for known in swarm["members"]]:
        status, info, _ = call("GET", told["endpoint"].rstrip("/") + "/info", headers=named())
        if status == 200 and info["agent_id"] == agent:
            swarm["members"].append(member(agent, told["endpoint"], info["public_key"], told["joined_at"]))
    elif told.get("action") in ("member_left", "member_kicked"):
        swarm["members"] = [known for known in swarm["members"] if known["agent_id"] != agent]


async def take_join(request):
    return await run_in_threadpool(let_in, await request.json())


def let_in(body):
    claims = json.loads(unpadded(body["invite_token"].split(".")[1]))
    swarm, sender = swarms.get(claims["swarm_id"]), body["sender"]
    if swarm is None:
        error = {"code": "SWARM_NOT_FOUND", "message": "Swarm not found", "details": None}
        return JSONResponse({"error": error}, 404)
    if sender["agent_id"] not in [known["agent_id"] for known in swarm["members"]]:
        new = member(sender["agent_id"], sender["endpoint"], sender["public_key"])
        swarm["members"].append(new)
        # Spaces after colons and commas, no key, and no header except the type.
        content = json.dumps({
            "type": "system", "action": "member_joined", "swarm_id": swarm["swarm_id"],
            "agent_id": new["agent_id"], "endpoint": new["endpoint"], "joined_at": new["joined_at"],
        })
        announced = message(swarm["swarm_id"], "broadcast", content, "system")
        for target in others(swarm["swarm_id"], new["agent_id"]):
            tell(target, announced, {})
    members = [{name: known[name] for name in ("agent_id", "endpoint", "public_key")} for known in swarm["members"]]
    return JSONResponse({
        "status": "accepted", "swarm_id": swarm["swarm_id"], "swarm_name": swarm["name"], "members": members,
    })


async def tell_info(_):
    return JSONResponse({
        "agent_id": AGENT, "endpoint": ENDPOINT, "public_key": public_key(), "protocol_version": VERSION,
        "capabilities": ["message", "system", "notification"], "metadata": None,
    } | posed)


async def tell_health(_):
    return JSONResponse({
        "status": "healthy", "agent_id": AGENT, "protocol_version": VERSION, "timestamp": stamp(), "message": None,
    })


async def in_detail(_, error):
    return JSONResponse({"detail": error.detail}, error.status_code)


def watched(app):
    """Records requests and answers and applies the set clock; answers instead of the application if configured."""

    async def run(scope, receive, send):
        if scope["type"] != "http":
            return await app(scope, receive, send)

        async def noting(part):
            if part["type"] == "http.response.start":
                part["headers"] = [*part.get("headers", []), (b"date", formatdate(time.time() + skew, usegmt=True).encode())]
                requests.append([scope["method"], scope["path"], part["status"], scope["http_version"]])
            await send(part)

        if not instead or scope["method"] != "POST":
            return await app(scope, receive, noting)
        await receive()
        await refusal(instead.pop(0))(scope, receive, noting)

    return run


def refusal(status):
    if status != 429:
        return JSONResponse({"detail": [{"type": "missing", "loc": ["body"], "msg": "Field required"}]}, status)
    at = int(time.time()) + 2
    error = {"code": "RATE_LIMITED", "message": "Rate limit exceeded", "details": {"retry_after": at}}
    return JSONResponse({"error": error}, 429, {"Retry-After": str(at)})


# Commands.


def unpadded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def padless(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def create(name):
    swarm_id = str(uuid.uuid4())
    me = member(AGENT, ENDPOINT, public_key())
    swarms[swarm_id] = {"swarm_id": swarm_id, "name": name, "master": AGENT, "members": [me]}
    return {"swarm_id": swarm_id}


def invite(swarm_id):
    ends = stamp(datetime.now(timezone.utc) + timedelta(hours=1))
    claims = {"swarm_id": swarm_id, "master": AGENT, "endpoint": ENDPOINT, "iat": int(time.time()), "expires_at": ends}
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "EdDSA", "typ": "JWT"}, claims)]
    signed = ".".join(padless(part) for part in parts)
    token = f"{signed}.{padless(key.sign(signed.encode()))}"
    return {"invite": f"swarm://{swarm_id}@{urlsplit(ENDPOINT).netloc}?token={token}"}


def join(link):
    token = link.split("?token=")[1]
    claims = json.loads(unpadded(token.split(".")[1]))
    body = {
        "type": "system", "action": "join_request", "invite_token": token,
        "sender": {"agent_id": AGENT, "endpoint": ENDPOINT, "public_key": public_key()},
    }
    status, answer, _ = call("POST", claims["endpoint"].rstrip("/") + "/join", body, named())
    if status == 200:
        members = [member(known["agent_id"], known["endpoint"], known["public_key"]) for known in answer["members"]]
        # The existing implementation refuses an empty name when it stores the roster.
        assert answer["swarm_name"]
        swarms[claims["swarm_id"]] = {
            "swarm_id": claims["swarm_id"], "name": answer["swarm_name"], "master": claims["master"], "members": members,
        }
    return {"status": status, "answer": answer}


def ask_to_join(link, sender, rejoin=None, signed=False):
    """Sends a join request in any name, signed with its own key on request. Changes nothing here."""
    token = link.split("?token=")[1]
    claims = json.loads(unpadded(token.split(".")[1]))
    body = {"type": "system", "action": "join_request", "invite_token": token, "sender": sender}
    if rejoin is not None:
        body["rejoin"] = rejoin
    if signed:
        proof = sign({
            "message_id": str(uuid.uuid4()), "timestamp": stamp(), "swarm_id": claims["swarm_id"],
            "recipient": claims["master"], "type": "system", "content": token,
        })
        body |= {name: proof[name] for name in ("message_id", "timestamp", "signature")}
    return post(claims["endpoint"].rstrip("/") + "/join", body) | {"body": body}


def post(url, body):
    status, answer, _ = call("POST", url, body)
    return {"status": status, "answer": answer}


def pose(**info):
    posed.clear()
    posed.update(info)


def send(swarm_id, to, content, kind="message", **more):
    body = message(swarm_id, to, content, kind, **more)
    targets = [known for known in others(swarm_id) if to in ("broadcast", known["agent_id"])]
    return {"message_id": body["message_id"], "statuses": [tell(target, body, named()) for target in targets]}


def forge(url, fields, after, raw=None, headers=None):
    """Sends a request with the given fields, of which `after` is set after the signature."""
    body = message(**{"swarm_id": "", "recipient": "broadcast", "content": ""}) | fields
    status, answer, heads = call("POST", url, raw or sign(body) | after, headers)
    return {"status": status, "answer": answer, "retry_after": heads.get("retry-after")}


def at_once(count, request):
    """Sends concurrent requests; returns their answers."""
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(lambda n: call("POST", *request(n)), range(count)))
    return [{"status": status, "answer": answer} for status, answer, _ in answers]


def join_at_once(link, count):
    """Joins with new agents at once, each with its own key and a proof that it has the key."""
    token = link.split("?token=")[1]
    claims = json.loads(unpadded(token.split(".")[1]))

    def request(n):
        own = Ed25519PrivateKey.generate()
        proof = sign({
            "message_id": str(uuid.uuid4()), "timestamp": stamp(), "swarm_id": claims["swarm_id"],
            "recipient": claims["master"], "type": "system", "content": token,
        }, own)
        sender = {"agent_id": f"racer-{n}", "endpoint": "https://127.0.0.1:9/swarm", "public_key": public_key(own)}
        body = {name: proof[name] for name in ("message_id", "timestamp", "signature", "type")}
        body |= {"action": "join_request", "invite_token": token, "sender": sender}
        return claims["endpoint"] + "/join", body

    return at_once(count, request)


def send_at_once(url, swarm_id, content, count):
    body = message(swarm_id, "broadcast", content)
    return at_once(count, lambda _: (url, body))


def kick(swarm_id, agent, reason):
    told = f'"agent_id":"{agent}","reason":"{reason}"}}'
    target = next(known for known in others(swarm_id) if known["agent_id"] == agent)
    first = tell(target, message(swarm_id, agent, '{"action":"kicked",' + told, "system"), named())
    body = message(swarm_id, "broadcast", '{"action":"member_kicked",' + told, "system")
    rest = [tell(known, body, named()) for known in others(swarm_id, agent)]
    swarms[swarm_id]["members"] = [known for known in swarms[swarm_id]["members"] if known["agent_id"] != agent]
    return {"statuses": [first, *rest]}


def leave(swarm_id):
    body = message(swarm_id, "broadcast", f'{{"action":"member_left","agent_id":"{AGENT}"}}', "system")
    return {"statuses": [tell(known, body, named()) for known in others(swarm_id)]}


def members(swarm_id):
    return sorted(known["agent_id"] for known in swarms[swarm_id]["members"])


def answer_instead(statuses):
    instead.extend(statuses)


def set_clock(seconds):
    global skew
    skew = seconds


COMMANDS = {
    "create": create, "invite": invite, "join": join, "send": send, "forge": forge, "kick": kick, "leave": leave,
    "members": members, "answer_instead": answer_instead, "set_clock": set_clock, "inbox": lambda: list(inbox.values()),
    "requests": lambda: list(requests), "ask_to_join": ask_to_join, "post": post, "pose": pose,
    "me": lambda: {"agent_id": AGENT, "endpoint": ENDPOINT, "public_key": public_key()},
    "join_at_once": join_at_once, "send_at_once": send_at_once,
}


def obey():
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(COMMANDS[command.pop("do")](**command)), flush=True)
    server.should_exit = True


routes = [
    Route("/swarm/message", take_message, methods=["POST"]), Route("/swarm/join", take_join, methods=["POST"]),
    Route("/swarm/info", tell_info), Route("/swarm/health", tell_health),
]
app = watched(Starlette(routes=routes, exception_handlers={HTTPException: in_detail}))
server = uvicorn.Server(uvicorn.Config(
    app, host="127.0.0.1", port=int(PORT), ssl_certfile=CERT, ssl_keyfile=KEY, log_level="error", lifespan="off",
    date_header=False, server_header=False,
))
threading.Thread(target=obey, daemon=True).start()
server.run()
