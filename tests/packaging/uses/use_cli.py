"""The command line without a database: it says what is missing."""

import subprocess
import sys
from pathlib import Path


def run(*words: str) -> str:
    program = Path(sys.prefix) / "bin" / "ttl-odm"
    finished = subprocess.run([str(program), *words], capture_output=True, text=True, check=False)
    assert "Traceback" not in finished.stderr, finished.stderr
    return f"{finished.returncode} {finished.stdout}{finished.stderr}"


assert run("--version").startswith("0 ttl-odm, version ")
assert "pip install 'ttl-odm[cli,sqlalchemy]'" in run("inspect", "sqlite:///shop.sqlite3")
assert "pip install 'ttl-odm[cli,beanie]'" in run("inspect", "mongodb://localhost/shop")
assert "pip install 'ttl-odm[cli,sqlalchemy]'" in run("demo")
