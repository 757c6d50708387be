"""A paste bin whose pastes expire, in Django, on a SQLite file.

    python examples/django_project/manage.py demo

makes the database, some pastes and an administrator, and serves http://127.0.0.1:8000/ (and
/admin/). Everything else that manage.py does works too: ``ttl_status``, ``ttl_sweep``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
