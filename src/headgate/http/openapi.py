"""The OpenAPI document, made from the same operations and types as the routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from headgate.api import bodies, problems
from headgate.http.operations import Operation

_ANY = (
    "malformed",
    "invalid-argument",
    "not-authenticated",
    "permission-denied",
    "not-found",
    "unavailable",
    "busy",
)
_CHANGING = (
    "key-reused",
    "transaction-expired",
    "too-large",
    "too-slow",
    "unsupported-media-type",
    "already-exists",
)
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A UUIDv7; a repeated request with the same key gets the same answer. For a "
    "proposal, its txnId.",
    "schema": {"type": "string"},
}


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Return the document."""
    kinds = [problems.Problem]
    for operation in operations:
        kinds += [kind for kind in (operation.body, operation.answer) if kind is not None]
    kinds = list(dict.fromkeys(kinds))
    references, components = bodies.schemas(kinds)
    reference = dict(zip(kinds, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _described(operation, reference)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": version,
            "summary": "The native API of a catalog for Delta Lake catalog-managed tables.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: Operation, reference: dict[Any, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    for parameter in operation.query:
        schema: dict[str, Any] = {"type": parameter.kind}
        if parameter.kind == "integer":
            schema |= {"minimum": 0, "format": "int64"}
        if parameter.is_repeated:
            schema = {"type": "array", "items": schema}
        description = parameter.description
        parameters.append(
            {"name": parameter.name, "in": "query", "description": description, "schema": schema}
        )
    if operation.is_changing:
        parameters.append(_IDEMPOTENCY_KEY)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(operation, reference),
    }
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        content = {bodies.JSON: {"schema": reference[operation.body]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _responses(operation: Operation, reference: dict[Any, Any]) -> dict[str, Any]:
    problem = {bodies.PROBLEM: {"schema": reference[problems.Problem]}}
    success: dict[str, Any] = {"description": operation.summary}
    if operation.answer is not None:
        success["content"] = {bodies.JSON: {"schema": reference[operation.answer]}}
    responses = {"204" if operation.answer is None else "200": success}
    codes = [*_ANY, *(_CHANGING if operation.is_changing else ()), *operation.problems]
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(problems.status_of(code), []).append(code)
    for status, found in sorted(by_status.items()):
        description = f"{HTTPStatus(status).phrase}: {', '.join(found)}"
        responses[str(status)] = {"description": description, "content": problem}
    responses["default"] = {"description": "Any other error; see `code`.", "content": problem}
    return responses
