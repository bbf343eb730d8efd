"""`headwater console`: the web page over a log, and its JSON API, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headwater.errors import EnvironmentFailed
from headwater.settings import Settings, load_settings

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Serve the web page over all of it: topics, groups, captures, pipelines, views, dead letters, alerts."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="the log (default: 127.0.0.1:9092)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where the page is served (default: 127.0.0.1:8080)")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="the broker's metrics, which say sizes on disk")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the settings file (default: headwater.toml)")


def run(arguments: argparse.Namespace) -> int:
    given = {
        "log.bootstrap": arguments.bootstrap,
        "console.listen": arguments.listen,
        "broker.metrics": arguments.metrics,
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
    app = application(cluster, host=host, token=settings["console.token"], settings=lambda: _shown(settings))
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


def _shown(settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "name": setting.name,
            "value": "***" if setting.form == "secret" and value.text else value.text,
            "source": value.source,
            "purpose": setting.purpose,
        }
        for setting, value in settings
    ]
