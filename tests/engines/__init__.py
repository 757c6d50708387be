"""What only `python3 tools/dev.py engines` runs, on engines that the tests don't start."""
