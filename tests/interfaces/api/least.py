"""The least that a route takes, by the OpenAPI document: nothing but what it names can be wrong."""

from paddock.domain.approval import Kind
from paddock.services.approvals import Question


async def asked(plane, box):
    """A question to the team that the sandbox belongs to."""
    question = Question(
        Kind.EGRESS,
        "a.example:443",
        title="a.example:443",
        why="",
        asked_by=box["id"],
        detail={},
        timeout_s=300,
    )

    def ask(tx):
        sandbox = tx.sandboxes.get("", box["id"])
        return plane.services.approvals.ask(tx, sandbox, question).id

    return await plane.services.store.write(ask)


def required(operation):
    """The parameters that the route cannot do without."""
    given = [p for p in operation.get("parameters", []) if p["in"] == "query"]
    needed = [p["name"] for p in given if p.get("required")]
    return "?" + "&".join(f"{name}=x" for name in needed) if needed else ""


def smallest(document, operation):
    """The least that the route takes, so that nothing but ownership can be the reason."""
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return None
    schema = content["application/json"]["schema"]
    return _value(document, schema)


def _value(document, schema):
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "examples" in schema:
        return schema["examples"][0]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        required = schema.get("required", [])
        return {name: _value(document, schema["properties"][name]) for name in required}
    if schema.get("type") == "array":
        return [_value(document, schema["items"])] * schema.get("minItems", 0)
    return {"string": "x", "integer": 1, "number": 1.0, "boolean": False}.get(schema.get("type"))
