"""What the server offers, as OpenAPI: for clients, and for tests that try everything it says."""

from typing import Any

from opendataflow import __version__

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ITEM = {"type": "object", "description": "An item with the fields that the stream's schema declares."}
_REFUSALS = {
    "400": "The body is no JSON.",
    "401": "No token.",
    "403": "Not the stream's token.",
    "404": "No such stream.",
    "408": "The body did not come in time.",
    "413": "The body is too large.",
    "415": "Neither JSON nor NDJSON.",
    "422": "An item does not fit the schema (each error has index, field and reason), or the key stands for others.",
    "429": "Too many items wait for being processed; see Retry-After.",
    "503": "Nothing can be written now; see Retry-After.",
    "507": "The disk is full; see Retry-After.",
}


def _answer(text: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": content}


def _send(name: str, *, in_project: bool) -> dict[str, Any]:
    path = ["project", "pipeline"] if in_project else ["pipeline"]
    parameters: list[dict[str, Any]] = [
        {"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in path
    ]
    key = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"}
    parameters.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": key})
    accepted = {"application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}}
    return {
        "operationId": name,
        "summary": "Send items; the answer comes once they are durable. All are accepted, or none.",
        "security": [{"token": []}],
        "parameters": parameters,
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"oneOf": [_ITEM, {"type": "array", "items": _ITEM, "minItems": 1}]}},
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        },
        "responses": {
            "202": _answer("Durable; their ids.", accepted),
            **{status: _answer(text, _PROBLEM) for status, text in _REFUSALS.items()},
        },
    }


DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "OpenDataFlow", "version": __version__},
    "paths": {
        "/health": {
            "get": {
                "operationId": "health",
                "responses": {
                    "200": _answer("The server is there.", {"application/json": {"schema": {"type": "object"}}})
                },
            }
        },
        "/v1/streams/{pipeline}": {"post": _send("send", in_project=False)},
        "/v1/streams/{project}/{pipeline}": {"post": _send("send_to_project", in_project=True)},
    },
    "components": {
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        "schemas": {
            "Accepted": {
                "type": "object",
                "required": ["count", "first", "last"],
                "properties": {
                    "count": {"type": "integer", "minimum": 1},
                    "first": {"type": "string"},
                    "last": {"type": "string"},
                    "ids": {"type": "array", "items": {"type": "string"}, "description": "Of up to a thousand items."},
                    "repeated": {"type": "boolean", "description": "The key was known: ids of the first time."},
                },
            },
            "Problem": {
                "type": "object",
                "required": ["title", "status", "detail"],
                "properties": {
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                    "errors": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["index", "reason"],
                            "properties": {
                                "index": {"type": "integer"},
                                "field": {"type": ["string", "null"]},
                                "reason": {"type": "string"},
                            },
                        },
                    },
                },
            },
        },
    },
}


def describe(app: Any) -> dict[str, Any]:
    """The whole: what the framework knows of the API's routes, and the intake's."""
    from fastapi.openapi.utils import get_openapi

    told = get_openapi(title=app.title, version=app.version, routes=app.routes)
    told["paths"] |= DESCRIPTION["paths"]
    components = told.setdefault("components", {})
    for kind, entries in DESCRIPTION["components"].items():
        components.setdefault(kind, {}).update(entries)
    for path, methods in told["paths"].items():
        for method in methods.values():
            if path not in DESCRIPTION["paths"]:
                method["security"] = [{"token": []}]
                for status, text in _API_REFUSALS.items():
                    method["responses"][status] = _answer(text, _PROBLEM)
    return told


_API_REFUSALS = {
    "400": "The request cannot be understood.",
    "401": "No session and no token.",
    "403": "The role does not suffice, or the CSRF token is missing.",
    "404": "There is no such thing.",
    "409": "It cannot be done as things stand; the detail says why.",
    "422": "A parameter or field does not fit.",
    "503": "The store cannot be reached.",
}
