# Everything is installed into .venv once. PYTHON selects the interpreter (3.10 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo demo-seg demo-cls test test-all lint bench clean-demo

help:
	@echo 'make setup     install the tested versions into $(VENV)'
	@echo 'make demo      train and evaluate KCLA Faster R-CNN and Mask R-CNN on a photograph of coins'
	@echo 'make demo-seg  train and evaluate a small KCLA U-Net on the foreground of the photograph'
	@echo 'make demo-cls  train and evaluate a KCLA ResNet-20 on handwritten digits'
	@echo 'make test      run the tests (minutes)'
	@echo 'make test-all  run all tests, including the long ones'
	@echo 'make lint      run ruff, and mypy on layers, models and utils'
	@echo 'make bench     measure the tables of docs/performance.md (DEVICE=cuda on a GPU)'

setup: $(STAMP)

$(STAMP): requirements.txt setup.cfg setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed, this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	# reference for tests; --no-deps, since it excludes scikit-image 0.26, with which it works
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps pysodmetrics==1.6.2
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(STAMP)
	$(BIN)/python tools/demo.py

demo-seg: $(STAMP)
	$(BIN)/python tools/demo.py segmentation

demo-cls: $(STAMP)
	$(BIN)/python tools/demo.py classification

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m ''

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

DEVICE ?= cpu
BENCH = $(BIN)/mmkcla benchmark model --device $(DEVICE)
R50 = $(foreach method,kcla mrla-light mrla-base dla-light dla-base softmax linear,$(method)-resnet50_8xb32_in1k)

bench: $(STAMP)
	$(BENCH) resnet50_8xb32_in1k $(R50) --part features --batch 1 --forms eager deployed --rounds 3 \
		--out-dir work_dirs/benchmark/resnet50
	$(BENCH) resnet50_8xb32_in1k kcla-resnet50_8xb32_in1k --part features --batch 4 \
		--forms eager deployed channels-last --out-dir work_dirs/benchmark/resnet50-time
	$(BENCH) faster-rcnn_r50_fpn_1x_coco faster-rcnn_r50-kcla_fpn_1x_coco --shape 320 480 --batch 1 --rounds 3 \
		--forms eager deployed --out-dir work_dirs/benchmark/faster-rcnn
	$(BENCH) unet-small_1xb8-300e_isic2018-256x256 unet-kcla-small_1xb8-300e_isic2018-256x256 --shape 256 --batch 2 \
		--forms eager deployed channels-last --out-dir work_dirs/benchmark/unet

clean-demo:
	rm -rf data/coins data/coins_isic2017 data/raw/coins_isic2017 work_dirs/demo
