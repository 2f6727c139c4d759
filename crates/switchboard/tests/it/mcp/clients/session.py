"""Two sessions of the official Python SDK, one writing to the other.

    python session.py legacy|auto stdio BINARY WORKSPACE
    python session.py legacy|auto http|sse URL TOKEN

`legacy` opens with `initialize`; `auto` queries the revisions of the server and uses the newest.
Prints one object with the result of each step.
"""

import asyncio
import json
import sys
import warnings
from contextlib import AsyncExitStack

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

MODE, KIND, TARGET, MORE = sys.argv[1:]
MODERN = MODE == "auto"
URI = "switchboard://inbox/reader"

# The older revisions are tested on purpose, so the warnings about them are noise.
warnings.simplefilter("ignore")


def transport(name):
    headers = {"Authorization": f"Bearer {MORE}"}
    if MODERN:
        # Without sessions there is no registration: each request names the agent.
        headers["Switchboard-Agent"] = name
    match KIND:
        case "stdio":
            env = {"SWITCHBOARD_AGENT_NAME": name} if MODERN else None
            return stdio_client(StdioServerParameters(command=TARGET, args=["mcp"], cwd=MORE, env=env))
        case "http":
            return streamable_http_client(TARGET, http_client=create_mcp_http_client(headers=headers))
        case "sse":
            return sse_client(TARGET, headers=headers)
    raise ValueError(f"unknown transport {KIND!r}")


class Session:
    def __init__(self):
        self.updated = asyncio.get_running_loop().create_future()
        self.progressed = asyncio.get_running_loop().create_future()
        self.subscribed = AsyncExitStack()

    async def open(self, stack, name):
        self.client = await stack.enter_async_context(
            Client(transport(name), mode=MODE, message_handler=self.hear)
        )
        self.registered = await self.call("register_chat_agent", {"name": name})

    async def hear(self, message):
        uri = getattr(getattr(message, "params", None), "uri", None)
        if uri is not None and not self.updated.done():
            self.updated.set_result(str(uri))

    async def progress(self, progress, total, message):
        if not self.progressed.done():
            self.progressed.set_result({"progress": progress, "total": total, "message": message})

    async def call(self, tool, arguments):
        return await self.client.call_tool(tool, arguments, 70, self.progress)

    async def subscribe(self):
        if not MODERN:
            return await self.client.subscribe_resource(URI)
        listening = self.client.listen(resource_subscriptions=[URI])
        subscription = await self.subscribed.enter_async_context(listening)

        async def listen():
            async for event in subscription:
                if not self.updated.done():
                    self.updated.set_result(event.uri)

        task = asyncio.create_task(listen())
        self.subscribed.callback(task.cancel)

    async def unsubscribe(self):
        if not MODERN:
            return await self.client.unsubscribe_resource(URI)
        await self.subscribed.aclose()


async def main():
    async with AsyncExitStack() as stack:
        sender, reader = Session(), Session()
        await sender.open(stack, "sender")
        await reader.open(stack, "reader")
        await reader.subscribe()

        # The message is sent once the reader has received progress of its call.
        waiting = asyncio.create_task(reader.call("wait_for_message", {"timeout": 60}))
        await asyncio.wait([waiting, reader.progressed], return_when=asyncio.FIRST_COMPLETED)
        letter = {"recipient": "reader", "action": "request_review", "payload": "please look"}
        sent = await sender.call("send_message", letter)
        waited = await waiting

        inbox = await reader.call("check_inbox", {})
        resource = await reader.client.read_resource(URI)
        ids = [sent.structured_content["id"]]
        acknowledged = await reader.call("ack_message", {"ids": ids, "summary": "looked"})
        receipt = await sender.call("get_receipt", {"id": ids[0]})
        unknown = await sender.call("send_mesage", {})
        updated = await asyncio.wait_for(reader.updated, 30)
        # The SDK fails on notifications that arrive while it closes, such as that of the acknowledgement. Those in flight
        # arrive before the answers that follow.
        await reader.unsubscribe()

        def payloads(found):
            return [message["payload"] for message in found["messages"]]

        result = {
            "revision": sender.client.protocol_version,
            "server": sender.client.server_info.name,
            "tools": [tool.name for tool in (await sender.client.list_tools()).tools],
            "resources": [str(found.uri) for found in (await reader.client.list_resources()).resources],
            "registered": reader.registered.content[0].text,
            "progress": reader.progressed.result() if reader.progressed.done() else None,
            "updated": updated,
            "waited": payloads(waited.structured_content),
            "isWhatWasSent": waited.structured_content["messages"][0]["id"] == ids[0],
            "inbox": payloads(inbox.structured_content),
            "resource": payloads(json.loads(resource.contents[0].text)),
            "acknowledged": acknowledged.structured_content["acknowledged"],
            "receipt": [delivery["state"] for delivery in receipt.structured_content["deliveries"]],
            "unknown": {"failed": unknown.is_error, "text": unknown.content[0].text},
        }
    print(json.dumps(result))


asyncio.run(main())
