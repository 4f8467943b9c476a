// The header and the library from C++: a write is undone.
#include <sealpoint/rewind.h>

#include <cstdio>
#include <sys/mman.h>

int main()
{
	const size_t size = 16 * 4096;
	char *memory = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	sp_rewind *rewind = nullptr;

	if (sp_rewind_open(&rewind, sp_span{memory, memory + size}, nullptr, 0, 1 << 20,
			   SP_WRITE_WATCH_AUTO) < 0)
		return 1;
	memory[3 * 4096] = 1;
	bool right = sp_rewind_capture(rewind) == 0 && sp_rewind_back(rewind, 1) == 0 &&
		     memory[3 * 4096] == 0;
	sp_rewind_close(rewind);
	std::puts("back");
	return right ? 0 : 1;
}
