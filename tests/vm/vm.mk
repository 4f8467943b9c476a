# sealpoint on another kernel, in an emulated machine: tests/vm/run.sh. VM_TESTS selects as for tests/run.sh.
vm-check:
	tools/install-deps.sh build test vm
	+$(MAKE) test-programs
	BUILD=$(BUILD) tests/vm/run.sh $(VM_TESTS)

.PHONY: vm-check
