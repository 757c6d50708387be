"""``python -m ttl_odm.cli``, where the script isn't on the path."""

from ttl_odm.cli import main

main()
