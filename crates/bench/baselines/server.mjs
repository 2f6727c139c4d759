// Baseline: the least that a Node program has to be to serve MCP over stdio. One tool, which answers with what it
// was given, on the official SDK's low-level server: no schemas are built and nothing is kept.

import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const echo = {
  name: "echo",
  description: "Answers with the text it was given.",
  inputSchema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
};

const server = new Server({ name: "baseline", version: "1.0.0" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [echo] }));
server.setRequestHandler(CallToolRequestSchema, ({ params }) => ({
  content: [{ type: "text", text: params.arguments.text }],
}));
await server.connect(new StdioServerTransport());
