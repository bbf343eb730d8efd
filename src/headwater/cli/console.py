"""`headwater console`: the web page over a log, and its JSON API, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import EnvironmentFailed
from headwater.settings import Settings, load_settings

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from headwater.console.cluster import Cluster

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Serve the web page over all of it: topics, groups, captures, pipelines, views, dead letters, alerts."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="the log (default: 127.0.0.1:9092)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where the page is served (default: 127.0.0.1:8080)")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="the broker's metrics, which say sizes on disk")
    parser.add_argument("--views", metavar="FILE", help="the declared views, to look into (default: views.toml)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file (default: headwater.toml)")


def run(arguments: argparse.Namespace) -> int:
    given = {
        "log.bootstrap": arguments.bootstrap,
        "console.listen": arguments.listen,
        "broker.metrics": arguments.metrics,
        "views.file": arguments.views,
    }
    return _serve(load_settings(given, file=arguments.config))


def _serve(settings: Settings) -> int:
    import socket

    import uvicorn

    from headwater.client import Connection
    from headwater.console.app import application
    from headwater.console.cluster import Cluster

    host, _, port = settings["console.listen"].rpartition(":")
    cluster = Cluster(Connection(settings["log.bootstrap"]), settings["broker.metrics"])
    token = settings["console.token"]
    app = application(
        cluster, host=host, token=token, settings=lambda: _shown(settings), views=_views(settings, cluster, token)
    )
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), int(port)))
    except OSError as error:
        listener.close()
        raise EnvironmentFailed(
            f"cannot serve the console at {host}:{port}: {error.strerror}; choose another with --listen"
        ) from error
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    with cluster:
        print(f"the console is at http://{host}:{listener.getsockname()[1]}/", flush=True)
        server.run(sockets=[listener])
    return 0


def _views(settings: Settings, cluster: Cluster, token: str) -> Starlette | None:
    """What serves the declared views; None when there are none, or what they need is not installed."""
    try:
        from headwater.views import load_definitions
        from headwater.views.serving import create_app
    except ModuleNotFoundError:
        return None
    definitions = load_definitions(Path(settings["views.file"]))
    return create_app(definitions, cluster.connection, token=token) if definitions else None


def _shown(settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "name": setting.name,
            "value": value.shown(setting),
            "source": value.source,
            "purpose": setting.purpose,
        }
        for setting, value in settings
    ]
