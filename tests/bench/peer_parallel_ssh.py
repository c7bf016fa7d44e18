"""Runs one command on many hosts with parallel-ssh and prints what they said, as pdsh does. Runs in the peers' venv.

Arguments: the fleet's directory, port, user, command.
"""

import sys
from pathlib import Path

from pssh.clients import ParallelSSHClient


def main(directory: str, port: str, user: str, command: str) -> None:
    hosts = Path(directory, "hosts").read_text().split()
    key = str(Path(directory, "id_ed25519"))
    client = ParallelSSHClient(hosts, user=user, port=int(port), pkey=key, pool_size=100, allow_agent=False)
    for answer in client.run_command(command):
        sys.stdout.writelines(f"{answer.host}: {line}\n" for line in answer.stdout)


main(*sys.argv[1:])
