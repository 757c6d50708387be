# One-line names for tools/dev.py, which needs no make. Further words: make test ARGS="--only sqlite"
PYTHON ?= python3
ARGS ?=

.PHONY: demo test lint bench docs mutate clean

demo:
	@$(PYTHON) tools/dev.py demo $(ARGS)

test:
	@$(PYTHON) tools/dev.py test $(ARGS)

lint:
	@$(PYTHON) tools/dev.py lint $(ARGS)

bench:
	@$(PYTHON) tools/dev.py bench $(ARGS)

docs:
	@$(PYTHON) tools/dev.py docs $(ARGS)

mutate:
	@$(PYTHON) tools/dev.py mutate $(ARGS)

clean:
	@$(PYTHON) tools/dev.py clean $(ARGS)
