"""`dataflow serve`: the HTTP server."""

import json
from typing import Annotated

import typer

from opendataflow.cli.render import put_now, say
from opendataflow.errors import ConfigurationError

LOCAL = ("127.0.0.1", "::1", "localhost")


def add_to(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8321,
    root_path: Annotated[str, typer.Option(help="The path under which a proxy shows it, such as /dataflow.")] = "",
    secure: Annotated[
        bool, typer.Option(help="Browsers come by https only: cookies are never sent otherwise.")
    ] = False,
    proxy: Annotated[
        str, typer.Option(help="Addresses of proxies, with commas, that say who their senders are (X-Forwarded-For).")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Say where it listens as a JSON object.")] = False,
) -> int:
    """Show the pages, answer the API under /v1, and take in items of streams, until it is told to stop.

    While there is no admin, it prints a link that makes one: it works once, within a day. Senders of items need the
    stream's token (`dataflow stream token PIPELINE`). Several servers, and `dataflow stream send`, may write to one
    stream at the same time. SIGTERM lets what has come finish; then it exits 0.

    Examples: dataflow serve;  dataflow serve --port 9000;  dataflow serve --host 0.0.0.0 --json
    """
    try:
        from opendataflow.server.app import make_app
        from opendataflow.server.context import Context
        from opendataflow.server.open_streams import Streams
        from opendataflow.server.serve import listen
        from opendataflow.server.serve import serve as run
        from opendataflow.server.stores import Stores
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is missing; pip install 'opendataflow[server]'") from None
    from opendataflow.cli.opened import address, opened
    from opendataflow.project.address import stream_folder
    from opendataflow.store.records.login_links import make_first_link

    found = address()
    store = opened(found)  # a store that does not fit is told here, and not to each sender
    at = listen(host, port)
    url = f"http://{f'[{host}]' if ':' in host else host}:{at.getsockname()[1]}"
    if host not in LOCAL:
        say("this is plain HTTP: tokens and items can be read on the way; put a proxy with TLS in front of it")

    base = f"/{root_path.strip('/')}" if root_path.strip("/") else ""
    secret = make_first_link(store)
    store.close()
    link = f"{url}{base}/welcome/{secret}" if secret else None

    def ready() -> None:
        told = {"url": url, "project": found.project, "admin_link": link}
        if link and not as_json:
            say(f"there is no admin yet; this link makes one, once, within a day:\n  {link}")
        put_now(json.dumps(told) if as_json else f"listening at {url}{base}")

    streams = Streams(lambda: opened(found), lambda project, slug: stream_folder(found, project, slug))
    context = Context(found, Stores(lambda: opened(found)), streams, is_secure=secure)
    return run(make_app(context, project=found.project, root_path=base), at, ready, proxies=proxy)
