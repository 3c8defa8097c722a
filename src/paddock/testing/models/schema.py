"""The smallest value that fits a JSON schema, for requests that want one."""

from collections.abc import Mapping
from typing import Any

_DEPTH = 20


def example(
    schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, depth: int = 0
) -> Any:
    """Gemini writes its types in capitals, so either is understood."""
    root = schema if root is None else root
    if depth > _DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return example(schema[word][0], root, depth + 1)
    if "$ref" in schema:
        return example(_referred(str(schema["$ref"]), root), root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    match str(kind).lower():
        case "object":
            properties = schema.get("properties") or {}
            return {
                name: example(properties.get(name, {}), root, depth + 1)
                for name in schema.get("required") or ()
            }
        case "array":
            count = int(schema.get("minItems", 0))
            return [example(schema.get("items") or {}, root, depth + 1) for _ in range(count)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "scripted".ljust(int(schema.get("minLength", 0)), ".")


def _referred(pointer: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for name in pointer.split("/")[1:]:
        found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}
