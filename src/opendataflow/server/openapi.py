"""What the server offers, as OpenAPI: for clients, and for tests that try everything it says."""

import re
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
        "tags": ["streams"],
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
                "tags": ["health"],
                "summary": "Whether the server is there; open to everybody.",
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
    """The whole, made once for each application."""
    if not hasattr(app.state, "openapi"):
        app.state.openapi = _describe(app)
    made: dict[str, Any] = app.state.openapi
    return made


def _describe(app: Any) -> dict[str, Any]:
    """What the framework knows of the API's routes, each action with what it asks for, and the intake."""
    from fastapi.openapi.utils import get_openapi

    from opendataflow.server.access import owners

    told = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_ABOUT)
    components = told.setdefault("components", {})
    for kind, entries in DESCRIPTION["components"].items():
        components.setdefault(kind, {}).update(entries)
    roles = {(method.lower(), re.sub(r":[a-z]+}", "}", path)): role for method, path, role in owners(app)}
    for path, methods in told["paths"].items():
        for verb, operation in methods.items():
            _complete(operation, roles.get((verb, path), ""))
    for path, methods in DESCRIPTION["paths"].items():
        told["paths"].setdefault(path, {}).update(methods)
    told["paths"] |= _actions(told["paths"], components["schemas"])
    used = {tag for methods in told["paths"].values() for one in methods.values() for tag in one.get("tags", ())}
    told["tags"] = [{"name": tag, "description": _TAGS.get(tag, "")} for tag in sorted(used)]
    return told


def _complete(operation: dict[str, Any], role: str) -> None:
    """Its first sentence as summary, the role it needs, and how it may be refused."""
    words = operation.get("description", "")
    made_up = operation["operationId"].startswith(operation.get("summary", "").lower().replace(" ", "_"))
    if words and made_up:
        operation["summary"] = re.split(r"(?<=[.;:])\s", words, maxsplit=1)[0].rstrip(".;:")
    if role == "everybody":
        operation["description"] = f"{words}\n\nOpen to everybody, or with a token or signature of its own.".strip()
    else:
        operation["security"] = [{"token": []}]
        operation["description"] = f"{words}\n\nNeeds the role {role}.".strip()
    for status, text in _API_REFUSALS.items():
        operation["responses"][status] = _answer(text, _PROBLEM)
    operation["responses"].setdefault("429", _answer("Too many at once; see Retry-After.", _PROBLEM))


def _actions(paths: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Each action by its own address: what it asks for is different."""
    from opendataflow.server.actions.registry import ACTIONS

    made: dict[str, Any] = {}
    for name, action in ACTIONS.items():
        asks = action.model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= asks.pop("$defs", {})
        schemas[action.model.__name__] = asks
        body = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{action.model.__name__}"}}},
        }
        for suffix, does in (("", action.title), ("/plan", f"What would happen: {action.title.lower()}")):
            general = paths[f"/v1/actions/{{name}}{suffix}"]["post"]
            made[f"/v1/actions/{name}{suffix}"] = {
                "post": {
                    **general,
                    "operationId": f"{name}{suffix}".replace("/", "_"),
                    "summary": does,
                    "description": f"{action.model.__doc__ or ''}\n\nNeeds the role {action.role.word}.".strip(),
                    "parameters": [],
                    "requestBody": body,
                }
            }
    return made


_ABOUT = """The same questions and actions as the pages and the `dataflow` command. Give `Authorization: Bearer TOKEN`
(`dataflow token new` makes one). What is refused is told as problem+json (RFC 9457), with the next step in `detail`."""
_TAGS = {
    "accounts": "Who may look and act, their tokens, and what they did.",
    "actions": "What people do: each says what would happen (`/plan`), and does it.",
    "alerts": "What people are told about, and what was sent.",
    "datasets": "Datasets and their chunks.",
    "grid": "Dataset × dataid by status, now or at a past moment.",
    "health": "Whether the server and its store are well.",
    "jobs": "Jobs and pipelines, their schedules and code.",
    "lineage": "What is made of what.",
    "overview": "What needs a person now.",
    "projects": "Projects in git.",
    "runs": "Runs, why work waits, and what was asked of workers.",
    "sources": "Where datasets come from and go to; binding, testing and downloading them.",
    "streams": "Items of streams: sending them, and how they are doing.",
    "workers": "Who is working.",
}
_API_REFUSALS = {
    "400": "The request cannot be understood.",
    "401": "No session and no token.",
    "403": "The role does not suffice, or the CSRF token is missing.",
    "404": "There is no such thing.",
    "409": "It cannot be done as things stand; the detail says why.",
    "413": "The body is too large.",
    "422": "A parameter or field does not fit.",
    "503": "The store cannot be reached.",
}
