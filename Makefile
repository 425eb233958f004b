# Front door: `make help` lists the targets.
BUILD ?= build
all:
	cmake -S . -B $(BUILD) -G Ninja >/dev/null && ninja -C $(BUILD)
