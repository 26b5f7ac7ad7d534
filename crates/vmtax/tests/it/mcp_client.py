"""Uses `vmtax mcp` by the official client of the Model Context Protocol, and prints what it found: mcp_client.py VMTAX"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def field(value, camel, snake):
    """A field by its name in version 1 of the client, or in version 2."""
    return getattr(value, camel) if hasattr(value, camel) else getattr(value, snake)


async def main(program):
    found = {}
    server = StdioServerParameters(command=program, args=["mcp"])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        about = await session.initialize()
        found["server"] = field(about, "serverInfo", "server_info").name
        found["tools"] = [tool.name for tool in (await session.list_tools()).tools]
        listed = await session.call_tool("list", {})
        found["recordings"] = len(field(listed, "structuredContent", "structured_content")["items"])
        report = await session.call_tool("report", {"recording": "first"})
        schema = field(report, "structuredContent", "structured_content")["schema"]
        text = json.loads(report.content[1].text)
        found["report"] = "ok" if schema == text["schema"] else f"{schema}"
        refused = await session.call_tool("diagnose", {"vm": "--apply"})
        assert field(refused, "isError", "is_error")
        found["refused"] = refused.content[0].text
        try:
            await session.call_tool("exec", {"command": "reboot"})
            found["unknown"] = "called"
        except Exception:
            found["unknown"] = "refused"
    print(json.dumps(found))


asyncio.run(main(sys.argv[1]))
