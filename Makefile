# The two commands of the README are `make lab` and `make test`. `make` alone lists all.
#   PYTHON=/path/to/python3.12   the Python to make .venv with
#   TORCH=cpu or TORCH=cuda      the build of torch on Linux, where the choice by this machine's GPU is not the right one
BOOTSTRAP = python3 tools/bootstrap.py $(if $(PYTHON),--python "$(PYTHON)") $(if $(TORCH),--torch "$(TORCH)")
BIN = .venv/bin
BUILDERS = $(wildcard tools/make_*.py tools/build_*.py)
# torch, and what it computes with, as on a processor that knows no newer vector instructions than SSE 4: sums are added
# up in another order, so that their last digits differ. No verdict and no stored output may depend on that.
OLDER_PROCESSOR = ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41

.DEFAULT_GOAL := help
.PHONY: help lab prepare test test-all test-gpu test-ladders libraries watching notebooks exercises images check pins clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

lab: ## Make the environment if needed and open JupyterLab at chapter 1
	@$(BOOTSTRAP)
	@$(BIN)/dtlearn lab

prepare:
	@echo "== 1. The environment"
	@$(BOOTSTRAP) --extras test
	@echo "== 2. Style, types, generated files"
	@# Beside them all tests are compiled once: all workers at once would each do it, 8 s of processor time.
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest tests --collect-only -q >/dev/null 2>&1 & \
		$(MAKE) --no-print-directory check; status=$$?; wait; exit $$status

test: prepare ## Make the environment if needed, then checks, notebooks and all tests but slow ones
	@echo "== 3. Tests, and every notebook once more against its stored outputs"
	@$(BIN)/python tools/run_tests.py

test-all: prepare ## The same with all answers and pipelines, and each notebook as an older processor computes it
	@echo "== 3. Tests"
	@$(BIN)/python tools/run_tests.py --without-notebooks
	@echo "== 4. The other answers to exercises, and all pipelines of the grid, as an older processor computes"
	@$(OLDER_PROCESSOR) $(BIN)/python tools/run_tests.py tests/course tests/grading tests/pipeline_parallel/runner \
		-m "every_answer or whole_grid"
	@echo "== 5. All tests that take a device on the stand-in for a GPU, and every notebook's code"
	@$(BIN)/python tools/run_tests.py tests -m every_device
	@echo "== 6. Every notebook as an older processor computes, against what it stores"
	@$(OLDER_PROCESSOR) $(BIN)/python tools/run_tests.py notebooks --nbval --nbval-current-env \
		-p tests.quick_start -p tests.kernel_sockets

test-gpu: ## On a machine with GPUs: all that takes a device, the notebooks and the benches; gpu_report.md says what came
	@$(BIN)/python tools/test_gpu.py

test-ladders: ## All edits and cases of the exercises' checks
	@$(BIN)/python tools/run_tests.py tests/course/test_ladders.py -m whole_ladder

libraries: ## Make .venv-libraries with DeepSpeed and others for chapter 15, and run the tests that need them
	@$(BOOTSTRAP) --extras test
	@$(BIN)/python tools/extra_environment.py libraries
	@PATH="$(CURDIR)/.venv-libraries/bin:$$PATH" .venv-libraries/bin/python -m pytest tests -m libraries -q

watching: ## Make .venv-watching with Weights & Biases and Ray for chapter 16, and run the tests that need them
	@$(BOOTSTRAP) --extras test
	@$(BIN)/python tools/extra_environment.py watching
	@PATH="$(CURDIR)/.venv-watching/bin:$$PATH" .venv-watching/bin/python -m pytest tests -m watching -q

notebooks: ## Build and run notebooks/*.ipynb from notebooks/src
	@$(BOOTSTRAP) --extras test
	@$(BIN)/python tools/build_notebooks.py

exercises: ## Make exercises/ from solutions/; your work is left alone
	@$(BOOTSTRAP) --extras test
	@$(BIN)/python tools/build_exercises.py

images: ## Draw images/ anew, from recorded runs
	@$(BOOTSTRAP) --extras test
	@$(BIN)/python tools/make_images.py

check: ## Style, types and generated files only; needs what `make test` installs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@set -e; for builder in $(BUILDERS); do echo "$(BIN)/python $$builder --check"; $(BIN)/python $$builder --check; done

pins: ## Rewrite constraints.txt from what .venv, .venv-libraries and .venv-watching hold
	@$(BIN)/python tools/extra_environment.py libraries
	@$(BIN)/python tools/extra_environment.py watching
	@{ grep '^#' constraints.txt; { $(BIN)/python -m pip freeze --all --exclude-editable; \
		.venv-libraries/bin/python -m pip freeze --all --exclude-editable --local; \
		.venv-watching/bin/python -m pip freeze --all --exclude-editable --local; } | grep -v '^pip==' \
		| sed 's/+.*$$//' | LC_ALL=C sort -fu; } > .venv/pins.txt
	@mv .venv/pins.txt constraints.txt

clean: ## Remove the environment and all caches; your work stays
	rm -rf .venv .venv-libraries .venv-watching .pytest_cache .mypy_cache .ruff_cache build dist dtlearn.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
