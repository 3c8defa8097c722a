"""An MCP server over standard input and output whose one tool, `say`, repeats what it is told."""

import json
import sys

TOOL = {
    "name": "say",
    "description": "Repeats it.",
    "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}},
}


def answer(method, params):
    match method:
        case "initialize":
            about = {"name": "echo", "version": "1"}
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"ECHOED {params['arguments']['what']}"}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params", {}))
    error = {"error": {"code": -32601, "message": "no such method"}}
    rest = error if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **rest}), flush=True)
