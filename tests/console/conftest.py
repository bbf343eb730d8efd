"""A console over a broker of its own, served for real on a free port."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn
from playwright.sync_api import Browser, sync_playwright

from headwater import Broker
from headwater.client import Connection
from headwater.console.app import application
from headwater.console.cluster import Cluster
from headwater.testing.waiting import eventually
from headwater.views import Definition, ViewsRunner, create
from headwater.views.serving import create_app

# Chromium talks to nobody but the page, and needs no screen
CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INSTALL_TIMEOUT_S = 240


@dataclass(frozen=True)
class Console:
    address: str
    connection: Connection
    cluster: Cluster
    broker: Broker


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with Broker(num_partitions=2) as broker:
        connection = Connection(broker.bootstrap_servers)
        cluster = Cluster(connection)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        store = f"sqlite:{tmp_path_factory.mktemp('views')}/people.db"
        people = Definition.of("people", topic="people", store=store, key="id")
        create(people)
        app = application(
            cluster,
            host="127.0.0.1",
            settings=lambda: [{"name": "a.setting", "value": "1"}],
            views=create_app({"people": people}, connection),
        )
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        with cluster, ViewsRunner([people], connection):
            thread.start()
            eventually(lambda: server.started, what="the console's server")
            yield Console(f"http://127.0.0.1:{listener.getsockname()[1]}", connection, cluster, broker)
            server.should_exit = True
            thread.join(10)


def _chromium() -> str:
    found = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if found is None and shutil.which("apt-get"):
        for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", "-qq", *words], check=False, timeout=INSTALL_TIMEOUT_S, capture_output=True)
        found = shutil.which("chromium")
    if found is None:
        pytest.skip("no Chromium on this machine, and apt-get could not install one")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=_chromium(), args=list(CHROMIUM_OPTIONS))
        yield made
        made.close()
