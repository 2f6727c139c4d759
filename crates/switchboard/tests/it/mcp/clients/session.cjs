// Two sessions of the official TypeScript SDK, one writing to the other.
//
//   node session.cjs stdio BINARY WORKSPACE
//   node session.cjs http|sse URL TOKEN
//
// Prints one object with the result of each step.
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { ResourceUpdatedNotificationSchema } = require('@modelcontextprotocol/sdk/types.js');

const [kind, target, more] = process.argv.slice(2);

function transport() {
  const options = { requestInit: { headers: { Authorization: `Bearer ${more}` } } };
  switch (kind) {
    case 'stdio':
      return new StdioClientTransport({ command: target, args: ['mcp'], cwd: more });
    case 'http':
      return new StreamableHTTPClientTransport(new URL(target), options);
    case 'sse':
      return new SSEClientTransport(new URL(target), options);
    default:
      throw new Error(`unknown transport '${kind}'`);
  }
}

async function open(name) {
  const client = new Client({ name: 'typescript-sdk', version: '1.0.0' });
  await client.connect(transport());
  const call = async (tool, args, options) =>
    client.callTool({ name: tool, arguments: args }, undefined, options);
  return { client, call, registered: await call('register_chat_agent', { name }) };
}

async function main() {
  const sender = await open('sender');
  const reader = await open('reader');
  const uri = 'switchboard://inbox/reader';
  const updated = new Promise((resolve) => {
    reader.client.setNotificationHandler(ResourceUpdatedNotificationSchema, (told) => resolve(told.params.uri));
  });
  await reader.client.subscribeResource({ uri });

  // The message is sent once the reader has received progress of its call.
  let progressed;
  const progress = new Promise((resolve) => (progressed = resolve));
  const waiting = reader.call('wait_for_message', { timeout: 60 }, { onprogress: progressed });
  const first = await Promise.race([progress, waiting]);
  const letter = { recipient: 'reader', action: 'request_review', payload: 'please look' };
  const sent = await sender.call('send_message', letter);
  const waited = await waiting;

  const inbox = await reader.call('check_inbox', {});
  const resource = await reader.client.readResource({ uri });
  const ids = [sent.structuredContent.id];
  const acknowledged = await reader.call('ack_message', { ids, summary: 'looked' });
  const receipt = await sender.call('get_receipt', { id: ids[0] });
  const unknown = await sender.call('send_mesage', {});
  const result = {
    server: sender.client.getServerVersion().name,
    tools: (await sender.client.listTools()).tools.map((tool) => tool.name),
    resources: (await reader.client.listResources()).resources.map((resource) => resource.uri),
    registered: reader.registered.content[0].text,
    progress: first,
    updated: await updated,
    waited: waited.structuredContent.messages.map((message) => message.payload),
    isWhatWasSent: waited.structuredContent.messages[0].id === ids[0],
    inbox: inbox.structuredContent.messages.map((message) => message.payload),
    resource: JSON.parse(resource.contents[0].text).messages.map((message) => message.payload),
    acknowledged: acknowledged.structuredContent.acknowledged,
    receipt: receipt.structuredContent.deliveries.map((delivery) => delivery.state),
    unknown: { failed: unknown.isError, text: unknown.content[0].text },
  };
  await Promise.all([sender.client.close(), reader.client.close()]);
  console.log(JSON.stringify(result));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
