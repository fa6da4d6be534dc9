"""Pages from templates, escaped; what all of them show is put here."""

import datetime
import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from opendataflow import __version__
from opendataflow.server.access import User

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
_TYPED = re.compile("`([^`]+)`")
NAVIGATION = (
    ("/", "Overview"), ("/datasets", "Datasets"), ("/jobs", "Jobs"), ("/runs", "Runs"), ("/lineage", "Lineage"),
    ("/streams", "Streams"), ("/sources", "Sources"), ("/projects", "Projects"), ("/workers", "Workers"),
    ("/alerts", "Alerts"),
)  # fmt: skip


def _versions() -> str:
    text = b"".join(file.read_bytes() for file in sorted(STATIC.iterdir()) if file.is_file())
    return hashlib.sha256(text).hexdigest()[:10]


def at(moment: Any) -> str:
    """A moment as people read it, UTC, to the second."""
    if moment is None or moment == "":
        return ""
    if isinstance(moment, datetime.datetime):
        moment = moment.astimezone(datetime.UTC).isoformat()
    return str(moment).replace("T", " ")[:19]


def seconds(value: float | None) -> str:
    """A duration as people read it."""
    if value is None:
        return ""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def segment(text: str) -> str:
    """A text as a part of a path."""
    return quote(str(text), safe="")


def with_commands(text: str | None) -> Markup:
    """A sentence in which what stands between backticks is shown as what is typed."""
    return Markup(_TYPED.sub(r"<code>\1</code>", str(escape(text or ""))))  # noqa: S704  escaped before


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FOLDER / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
    undefined=jinja2.StrictUndefined, auto_reload=False,
)  # fmt: skip
_ENVIRONMENT.filters |= {"at": at, "seconds": seconds, "number": number, "segment": segment, "commands": with_commands}
_ENVIRONMENT.globals |= {"version": __version__, "navigation": NAVIGATION, "files": _versions()}


def render(request: Request, name: str, *, user: User | None, status: int = 200, **facts: Any) -> Response:
    """The page; nothing is sent when the browser has the same already."""
    base = request.scope.get("root_path", "")

    def url(path: str, **query: Any) -> str:
        """An address of ours, also behind a proxy's path; empty parts of the query are left out."""
        told = {name: value for name, value in query.items() if value not in (None, "", [], False)}
        return f"{base}{path}" + (f"?{urlencode(told, doseq=True)}" if told else "")

    text = _ENVIRONMENT.get_template(name).render(
        request=request,
        user=user,
        url=url,
        here=request.url.path.removeprefix(base) or "/",
        said=_said(request, user),
        **facts,
    )
    mark = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    headers = {"ETag": mark, "Cache-Control": "no-cache, private"}
    if request.headers.get("if-none-match") == mark and status == 200:
        return Response(status_code=304, headers=headers)
    return Response(text, status, headers=headers, media_type="text/html")


def with_said(path: str, user: User, text: str) -> str:
    """The address of a page that says this at its top, once."""
    mark = "&" if "?" in path else "?"
    return f"{path}{mark}{urlencode({'said': f'{_mark(user, text)} {text}'})}"


def _said(request: Request, user: User | None) -> str:
    """What the page is to say; nothing, where the address was not made for this session: others make addresses, too."""
    mark, _, text = request.query_params.get("said", "").partition(" ")
    is_ours = user is not None and user.csrf != "" and hmac.compare_digest(mark.encode(), _mark(user, text).encode())
    return text if is_ours else ""


def _mark(user: User, text: str) -> str:
    return hmac.new(user.csrf.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:16]


def private(answer: Response) -> Response:
    """Nobody keeps this page, and where it leads to is not told where it was."""
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["Referrer-Policy"] = "no-referrer"
    if "ETag" in answer.headers:
        del answer.headers["ETag"]
    return answer


def as_json(value: Any) -> str:
    """For data in a page's attribute."""
    return json.dumps(value, default=str, separators=(",", ":"))


_ENVIRONMENT.filters["json"] = as_json
